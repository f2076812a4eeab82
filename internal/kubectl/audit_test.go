// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kubectl"
)

// logged returns one audit log line for the departure of office, modified by changes.
func logged(ago time.Duration, id string, outcome audit.Outcome, changes ...func(*audit.Line)) string {
	l := audit.Line{
		Time: now.Add(-ago), Kind: audit.Depart, Machine: "farm/office", Cluster: "farm/prod", Reason: "WindowClosed",
		GraceSeconds: 300, Outcome: outcome, ActionID: id, Lane: "scheduled", Attempt: 1, UID: "u1",
	}
	for _, change := range changes {
		change(&l)
	}
	var b strings.Builder
	audit.New(&b).Write(l)
	return b.String()
}

func spare(l *audit.Line) {
	l.Kind, l.Machine, l.Reason, l.Lane, l.GraceSeconds = audit.EmergencyRemove, "barn/spare", "EmergencyReclaim", "exempt", 0
	l.By = "process-match: idea"
}

func agent(l *audit.Line) {
	l.Kind, l.Machine, l.Reason, l.Lane, l.GraceSeconds, l.Cluster = audit.NodePatch, "", "Agent", "", 0, "farm/lab"
}

// auditLog returns the lines of three actions that ended, the first after three attempts, and of one that did not end.
func auditLog() string {
	return logged(24*time.Hour, "a1", audit.Conflict) +
		logged(24*time.Hour-time.Second, "a2", audit.Success, spare) +
		logged(24*time.Hour-2*time.Second, "a1", audit.APIError) +
		logged(24*time.Hour-9*time.Second, "a1", audit.Success) +
		logged(2*time.Hour, "a1/pre-drain", audit.Success) +
		logged(time.Hour, "a3", audit.RemoteUnreachable, agent)
}

const (
	auditHead  = "TIME                  KIND             OUTCOME             MACHINE, REASON AND ACTION\n"
	auditSpare = "2025-01-14T17:00:01Z  EmergencyRemove  success             barn/spare of farm/prod: EmergencyReclaim, exempt (process-match: idea); a2\n"
	auditFirst = "2025-01-14T17:00:09Z  Depart           success             farm/office of farm/prod: WindowClosed, scheduled, 5m0s of grace; after 1 conflict and 1 api_error in 9s; a1\n"
	auditHook  = "2025-01-15T15:00:00Z  Depart           success             farm/office of farm/prod: WindowClosed, scheduled, 5m0s of grace; a1/pre-drain\n"
	auditOpen  = "2025-01-15T16:00:00Z  NodePatch        remote_unreachable  all machines of farm/lab: Agent; a3\n"
)

func TestAuditFilters(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"All": {
			"Each action once, when it ends, and what has no end last.", nil,
			auditHead + auditSpare + auditFirst + auditHook + auditOpen +
				"\nActions: 4 (3 success, 1 remote_unreachable).\nWithout a last line: 1 (tried again, unless the manager has ended).\n",
		},
		"Machine":    {"A name is enough.", []string{"--machine", "spare"}, auditHead + auditSpare + "\nActions: 1 (1 success).\n"},
		"InFull":     {"A namespace may be given.", []string{"--machine", "barn/spare"}, auditHead + auditSpare + "\nActions: 1 (1 success).\n"},
		"OtherPlace": {"And then it counts.", []string{"--machine", "farm/spare"}, "No actions found.\n"},
		"PartOfName": {"Half a name names nobody.", []string{"--machine", "are"}, "No actions found.\n"},
		"Cluster": {
			"What is done to all of a Cluster is found.",
			[]string{"--cluster", "lab"},
			auditHead + auditOpen + "\nActions: 1 (1 remote_unreachable).\nWithout a last line: 1 (tried again, unless the manager has ended).\n",
		},
		"Kinds":   {"Several may be named.", []string{"--kind", "EmergencyRemove,KillSwitch"}, auditHead + auditSpare + "\nActions: 1 (1 success).\n"},
		"Outcome": {"The action is shown that met it, however it ended.", []string{"--outcome", "api_error"}, auditHead + auditFirst + "\nActions: 1 (1 success).\n"},
		"Action":  {"What follows for the same departure has a suffix.", []string{"--action", "a1"}, auditHead + auditFirst + auditHook + "\nActions: 2 (2 success).\n"},
		"OneStep": {"The suffix can be named.", []string{"--action", "a1/pre-drain"}, auditHead + auditHook + "\nActions: 1 (1 success).\n"},
		"Since": {
			"An instant is in what begins there.",
			[]string{"--since", "2025-01-15T15:00:00Z", "--kind", "Depart"},
			auditHead + auditHook + "\nActions: 1 (1 success).\n",
		},
		"Ago":      {"People think in hours.", []string{"--since", "3h", "--until", "90m"}, auditHead + auditHook + "\nActions: 1 (1 success).\n"},
		"Until":    {"It is not in what ends there.", []string{"--until", "2025-01-14T17:00:01Z"}, auditHead + auditFirst + "\nActions: 1 (1 success).\n"},
		"OneLine":  {"All that is asked for has to be so of one line.", []string{"--outcome", "conflict", "--since", "2025-01-14T17:00:05Z"}, "No actions found.\n"},
		"Together": {"All flags count.", []string{"--machine", "office", "--kind", "Remove"}, "No actions found.\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(result{Out: tc.want}, run(auditLog(), append([]string{"audit", "-o", "wide"}, tc.args...)...)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAuditNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	torn := file(t, "torn.jsonl", logged(time.Hour, "b1", audit.Success)[:20]+"\n"+strings.Repeat("x", 1<<20)+"\n\n"+strings.TrimSpace(logged(time.Hour, "b2", audit.Success, spare)))
	got := run(auditLog(), "audit", "-o", "wide", "/does/not/exist", torn, "-")
	want := result{
		Out: auditHead + "2025-01-15T16:00:00Z  EmergencyRemove  success             barn/spare of farm/prod: EmergencyReclaim, exempt (process-match: idea); b2\n" +
			auditSpare + auditFirst + auditHook + auditOpen + "\nActions: 5 (4 success, 1 remote_unreachable).\n" +
			"Without a last line: 1 (tried again, unless the manager has ended).\n",
		Err: "error: " + torn + ", line 1: no line of an audit log: unexpected end of JSON input\n" +
			"error: " + torn + ", line 2: longer than 1048576 bytes\n" +
			"error: open /does/not/exist: no such file or directory\n" +
			"error: lines that could not be read: 2\n",
		Code: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("What can be read is shown all the same.\n-want, +got:\n%s", diff)
	}
	missing := result{Err: "error: open /does/not/exist: no such file or directory\n", Code: 2}
	if diff := cmp.Diff(missing, run("", "audit", "/does/not/exist")); diff != "" {
		t.Errorf("A file that was not read has no known number of actions.\n-want, +got:\n%s", diff)
	}
	if got := run("", "audit", t.TempDir()); got.Code != 2 || !strings.Contains(got.Err, "is a directory") {
		t.Errorf("a folder: %+v", got)
	}
}

// TestAuditGoesOnInTheNextFile reads a departure that one manager began and another ended.
func TestAuditGoesOnInTheNextFile(t *testing.T) {
	t.Parallel()
	first, second := file(t, "a", logged(time.Minute, "c1", audit.APIError)), file(t, "b", logged(0, "c1", audit.Success)+logged(0, "c1", audit.Success))
	got := run("", "audit", "-o", "json", first, second)
	const want = `{"time":"2025-01-15T17:00:00Z","cycle":0,"kind":"Depart","machine":"farm/office","cluster":"farm/prod","reason":"WindowClosed","grace_seconds":300,` +
		`"outcome":"success","action_id":"c1","lane":"scheduled","attempt":1,"uid":"u1","first":"2025-01-15T16:59:00Z","before":{"api_error":1},"final":true}` + "\n" +
		`{"time":"2025-01-15T17:00:00Z","cycle":0,"kind":"Depart","machine":"farm/office","cluster":"farm/prod","reason":"WindowClosed","grace_seconds":300,` +
		`"outcome":"success","action_id":"c1","lane":"scheduled","attempt":1,"uid":"u1","first":"2025-01-15T17:00:00Z","final":true}` + "\n"
	if diff := cmp.Diff(result{Out: want}, got); diff != "" {
		t.Errorf("An action that has ended is not kept.\n-want, +got:\n%s", diff)
	}
}

func TestAuditOfTextThatLies(t *testing.T) {
	t.Parallel()
	got := run(logged(0, "d1", audit.Success, func(l *audit.Line) { l.Machine, l.Reason = "farm/x\n2025", "\x1b[2J" }), "audit", "-o", "wide")
	want := auditHead + "2025-01-15T17:00:00Z  Depart           success             farm/x\ufffd2025 of farm/prod: \ufffd[2J, scheduled, 5m0s of grace; d1\n\nActions: 1 (1 success).\n"
	if diff := cmp.Diff(result{Out: want}, got); diff != "" {
		t.Errorf("Who writes a reason writes no line.\n-want, +got:\n%s", diff)
	}
}

// TestAuditTellsAtOnce reads a log while it is still written.
func TestAuditTellsAtOnce(t *testing.T) {
	t.Parallel()
	in, manager := io.Pipe()
	people, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		cmd := kubectl.New(kubectl.Options{In: in, Out: out, Err: io.Discard, Now: func() time.Time { return now }})
		cmd.SetArgs([]string{"audit", "-o", "json"})
		done <- errors.Join(cmd.Execute(), out.Close())
	}()
	read := bufio.NewReader(people)
	for i := range 3 {
		id := fmt.Sprintf(`"action_id":"e%d"`, i)
		if _, err := io.WriteString(manager, logged(0, fmt.Sprintf("e%d", i), audit.Success)); err != nil {
			t.Fatal(err)
		}
		if line, err := read.ReadString('\n'); err != nil || !strings.Contains(line, id) {
			t.Fatalf("%v: %s", err, line)
		}
	}
	_ = manager.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAuditStopsWhenNobodyReads closes the output pipe early, as head does.
func TestAuditStopsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	people, out := io.Pipe()
	_ = people.Close()
	endless := io.MultiReader(strings.NewReader(auditLog()), readerFunc(func([]byte) (int, error) {
		t.Error("it reads on")
		return 0, io.EOF
	}))
	cmd := kubectl.New(kubectl.Options{In: endless, Out: out, Err: io.Discard, Now: func() time.Time { return now }})
	cmd.SetArgs([]string{"audit", "-", "/does/not/exist"})
	if err := cmd.Execute(); kubectl.ExitCode(err) != 1 || err.Error() != "writing: io: read/write on closed pipe" {
		t.Errorf("exit code %d: %v", kubectl.ExitCode(err), err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestAuditLosesNoLine reads random valid and invalid lines in random order.
func TestAuditLosesNoLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var log strings.Builder
		last := map[string]audit.Outcome{} // of actions that have not ended
		lines, ends, bad := 0, 0, 0
		for i := range rapid.IntRange(0, 40).Draw(t, "lines") {
			if rapid.IntRange(0, 9).Draw(t, "torn") == 0 {
				log.WriteString("{\n")
				bad++
				continue
			}
			id := rapid.SampledFrom([]string{"a", "b", "c", "d/e"}).Draw(t, "id")
			outcome := rapid.SampledFrom(audit.Outcomes).Draw(t, "outcome")
			log.WriteString(logged(time.Hour-time.Duration(i)*time.Second, id, outcome))
			lines++
			if last[id] = outcome; outcome.Final() {
				delete(last, id)
				ends++
			}
		}
		got := run(log.String(), "audit", "-o", "json")
		if wantCode := min(bad, 1) * 2; got.Code != wantCode || strings.Count(got.Err, ", line ") != bad {
			t.Fatalf("%d lines are none: code %d\n%s", bad, got.Code, got.Err)
		}
		told, ended, open := 0, 0, map[string]audit.Outcome{}
		for text := range strings.Lines(got.Out) {
			var a struct {
				audit.Line
				Before map[audit.Outcome]int
				Final  bool
			}
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatal(err)
			}
			told++
			for _, n := range a.Before {
				told += n
			}
			if a.Final {
				ended++
			} else {
				open[a.ActionID] = a.Outcome
			}
		}
		if told != lines || ended != ends {
			t.Fatalf("%d lines and %d ends are told of %d and %d:\n%s", told, ended, lines, ends, got.Out)
		}
		if diff := cmp.Diff(last, open); diff != "" {
			t.Fatalf("without an end: -want, +got:\n%s", diff)
		}
	})
}

func TestAuditRefusesWordsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--kind", "depart"}, {"--outcome", "success,ok"}, {"--since", "yesterday"}, {"--until", "2025-01-15"}} {
		got := run("", slices.Concat([]string{"audit"}, args)...)
		if got.Code != 2 || !strings.Contains(got.Err, "write ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// TestAuditOfAGraceBeyondAnyTime reads a file with values that no manager writes.
func TestAuditOfAGraceBeyondAnyTime(t *testing.T) {
	t.Parallel()
	for grace, want := range map[int64]string{math.MaxInt64: "9223372036854775807s", 9_223_372_037: "9223372037s", 90: "1m30s"} {
		got := run(logged(time.Hour, "a1", audit.Success, func(l *audit.Line) { l.GraceSeconds = grace }), "audit", "-o", "wide", "-")
		if !strings.Contains(got.Out, ", "+want+" of grace;") {
			t.Errorf("want %s in %+v", want, got)
		}
	}
}

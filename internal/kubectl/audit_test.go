// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"bufio"
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
		GraceSeconds: 300, Outcome: outcome, ActionID: id, Lane: "scheduled", UID: "u1",
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

// auditLog returns the lines of two departures, the first after three attempts, and of a write that failed.
func auditLog() string {
	return logged(24*time.Hour, "a1", audit.Conflict) +
		logged(24*time.Hour-time.Second, "a2", audit.Success, spare) +
		logged(24*time.Hour-2*time.Second, "a1", audit.APIError) +
		logged(24*time.Hour-9*time.Second, "a1", audit.Success) +
		logged(2*time.Hour, "a1/pre-drain", audit.Success) +
		logged(time.Hour, "", audit.RemoteUnreachable, agent)
}

const (
	auditHead  = "TIME                  KIND             OUTCOME             MACHINE, REASON AND ACTION\n"
	auditRaced = "2025-01-14T17:00:00Z  Depart           conflict            farm/office of farm/prod: WindowClosed, scheduled, 5m0s of grace; a1\n"
	auditSpare = "2025-01-14T17:00:01Z  EmergencyRemove  success             barn/spare of farm/prod: EmergencyReclaim, exempt (process-match: idea); a2\n"
	auditError = "2025-01-14T17:00:02Z  Depart           api_error           farm/office of farm/prod: WindowClosed, scheduled, 5m0s of grace; a1\n"
	auditFirst = "2025-01-14T17:00:09Z  Depart           success             farm/office of farm/prod: WindowClosed, scheduled, 5m0s of grace; a1\n"
	auditHook  = "2025-01-15T15:00:00Z  Depart           success             farm/office of farm/prod: WindowClosed, scheduled, 5m0s of grace; a1/pre-drain\n"
	auditOpen  = "2025-01-15T16:00:00Z  NodePatch        remote_unreachable  all machines of farm/lab: Agent\n"
)

func TestAuditFilters(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"All": {
			"Each line in its order.", nil,
			auditHead + auditRaced + auditSpare + auditError + auditFirst + auditHook + auditOpen +
				"\nLines: 6 (3 success, 1 conflict, 1 api_error, 1 remote_unreachable).\n",
		},
		"Machine":    {"A name is enough.", []string{"--machine", "spare"}, auditHead + auditSpare + "\nLines: 1 (1 success).\n"},
		"InFull":     {"A namespace may be given.", []string{"--machine", "barn/spare"}, auditHead + auditSpare + "\nLines: 1 (1 success).\n"},
		"OtherPlace": {"And then it counts.", []string{"--machine", "farm/spare"}, "No lines found.\n"},
		"PartOfName": {"A part of a name selects no machine.", []string{"--machine", "are"}, "No lines found.\n"},
		"Cluster": {
			"What is done to all of a Cluster is found.",
			[]string{"--cluster", "lab"},
			auditHead + auditOpen + "\nLines: 1 (1 remote_unreachable).\n",
		},
		"Kinds":   {"Several may be named.", []string{"--kind", "EmergencyRemove,KillSwitch"}, auditHead + auditSpare + "\nLines: 1 (1 success).\n"},
		"Outcome": {"Each line has one.", []string{"--outcome", "api_error"}, auditHead + auditError + "\nLines: 1 (1 api_error).\n"},
		"Action":  {"What follows for the same departure has a suffix.", []string{"--action", "a1"}, auditHead + auditRaced + auditError + auditFirst + auditHook + "\nLines: 4 (2 success, 1 conflict, 1 api_error).\n"},
		"OneStep": {"The suffix can be named.", []string{"--action", "a1/pre-drain"}, auditHead + auditHook + "\nLines: 1 (1 success).\n"},
		"Since": {
			"An instant is in what begins there.",
			[]string{"--since", "2025-01-15T15:00:00Z", "--kind", "Depart"},
			auditHead + auditHook + "\nLines: 1 (1 success).\n",
		},
		"Ago":      {"People think in hours.", []string{"--since", "3h", "--until", "90m"}, auditHead + auditHook + "\nLines: 1 (1 success).\n"},
		"Until":    {"It is not in what ends there.", []string{"--until", "2025-01-14T17:00:01Z"}, auditHead + auditRaced + "\nLines: 1 (1 conflict).\n"},
		"OneLine":  {"All that is asked for has to be so of one line.", []string{"--outcome", "conflict", "--since", "2025-01-14T17:00:05Z"}, "No lines found.\n"},
		"Together": {"All flags count.", []string{"--machine", "office", "--kind", "Remove"}, "No lines found.\n"},
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

func TestAuditReportsUnreadableLines(t *testing.T) {
	t.Parallel()
	torn := file(t, "torn.jsonl", logged(time.Hour, "b1", audit.Success)[:20]+"\n"+strings.Repeat("x", 1<<20)+"\n\n"+strings.TrimSpace(logged(time.Hour, "b2", audit.Success, spare)))
	got := run(auditLog(), "audit", "-o", "wide", "/does/not/exist", torn, "-")
	want := result{
		Out: auditHead + "2025-01-15T16:00:00Z  EmergencyRemove  success             barn/spare of farm/prod: EmergencyReclaim, exempt (process-match: idea); b2\n" +
			auditRaced + auditSpare + auditError + auditFirst + auditHook + auditOpen +
			"\nLines: 7 (4 success, 1 conflict, 1 api_error, 1 remote_unreachable).\n",
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
		t.Errorf("A file that was not read has no known number of lines.\n-want, +got:\n%s", diff)
	}
	if got := run("", "audit", t.TempDir()); got.Code != 2 || !strings.Contains(got.Err, "is a directory") {
		t.Errorf("a folder: %+v", got)
	}
}

// TestAuditReadsSeveralFiles reads a departure that one manager began and another ended.
func TestAuditReadsSeveralFiles(t *testing.T) {
	t.Parallel()
	began, ended := logged(time.Minute, "c1", audit.APIError), logged(0, "c1", audit.Success)
	got := run("", "audit", "-o", "json", file(t, "a", began), file(t, "b", ended))
	if diff := cmp.Diff(result{Out: began + ended}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestAuditEscapesText(t *testing.T) {
	t.Parallel()
	got := run(logged(0, "d1", audit.Success, func(l *audit.Line) { l.Machine, l.Reason = "farm/x\n2025", "\x1b[2J" }), "audit", "-o", "wide")
	want := auditHead + "2025-01-15T17:00:00Z  Depart           success             farm/x\ufffd2025 of farm/prod: \ufffd[2J, scheduled, 5m0s of grace; d1\n\nLines: 1 (1 success).\n"
	if diff := cmp.Diff(result{Out: want}, got); diff != "" {
		t.Errorf("A reason cannot add a line to the output.\n-want, +got:\n%s", diff)
	}
}

// TestAuditPrintsALineWhenItIsWritten reads a log while it is still written.
func TestAuditPrintsALineWhenItIsWritten(t *testing.T) {
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

// TestAuditStopsWhenItsOutputIsClosed closes the output pipe early, as head does.
func TestAuditStopsWhenItsOutputIsClosed(t *testing.T) {
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
		var log, want strings.Builder
		bad := 0
		for i := range rapid.IntRange(0, 40).Draw(t, "lines") {
			if rapid.IntRange(0, 9).Draw(t, "torn") == 0 {
				log.WriteString("{\n")
				bad++
				continue
			}
			text := logged(time.Hour-time.Duration(i)*time.Second, "a", rapid.SampledFrom(audit.Outcomes).Draw(t, "outcome"))
			log.WriteString(text)
			want.WriteString(text)
		}
		got := run(log.String(), "audit", "-o", "json")
		if wantCode := min(bad, 1) * 2; got.Code != wantCode || strings.Count(got.Err, ", line ") != bad {
			t.Fatalf("%d lines are none: code %d\n%s", bad, got.Code, got.Err)
		}
		if diff := cmp.Diff(want.String(), got.Out); diff != "" {
			t.Fatalf("-want, +got:\n%s", diff)
		}
	})
}

func TestAuditRejectsUnknownValues(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--kind", "depart"}, {"--outcome", "success,ok"}, {"--since", "yesterday"}, {"--until", "2025-01-15"}} {
		got := run("", slices.Concat([]string{"audit"}, args)...)
		if got.Code != 2 || !strings.Contains(got.Err, "write ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// TestAuditPrintsAGraceThatOverflows reads a file with values that no manager writes.
func TestAuditPrintsAGraceThatOverflows(t *testing.T) {
	t.Parallel()
	for grace, want := range map[int64]string{math.MaxInt64: "9223372036854775807s", 9_223_372_037: "9223372037s", 90: "1m30s"} {
		got := run(logged(time.Hour, "a1", audit.Success, func(l *audit.Line) { l.GraceSeconds = grace }), "audit", "-o", "wide", "-")
		if !strings.Contains(got.Out, ", "+want+" of grace;") {
			t.Errorf("want %s in %+v", want, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, tc := range []struct {
		values  []float64
		q, want float64
	}{
		{hundred, .5, 50},
		{hundred, .99, 99},
		{hundred, 1, 100},
		{hundred, 0, 1},
		{[]float64{7}, .5, 7},
		{[]float64{7}, .99, 7},
		{[]float64{1, 2, 3, 4, 5}, .9, 5},
	} {
		if got := quantile(tc.values, tc.q); got != tc.want {
			t.Errorf("quantile %v of %v is %v, want %v", tc.q, tc.values, got, tc.want)
		}
	}
}

func TestWhatNobodySawIsMissingAndMeetsNoGoal(t *testing.T) {
	none := spread("none", nil).against("some", spread("some", []time.Duration{time.Second})).goal("≤ 1", true)
	if none.Missing == "" || *none.Met || none.within(1) {
		t.Errorf("%+v, want a figure that is missing and meets nothing", none)
	}
	some := spread("some", []time.Duration{time.Second}).against("none", spread("none", nil))
	if some.Peer != "" || some.within(1) {
		t.Errorf("%+v was compared with nothing", some)
	}
	path := filepath.Join(t.TempDir(), "figures.json")
	if err := (report{Figures: []figure{none, some}}).write(path); err != nil {
		t.Errorf("a report with a figure that is missing: %v", err)
	}
}

func TestSampleShrinksWhatWasNotGiven(t *testing.T) {
	o, err := parse([]string{"--sample", "--runs=3", "--only=edge,scale"})
	if err != nil {
		t.Fatal(err)
	}
	if o.runs != 3 || o.machines != sampled.machines || o.settled != time.Minute || len(o.only) != 2 {
		t.Errorf("a flag that is given counts, the others are small: %+v", o)
	}
	if _, err := parse([]string{"--only=edges"}); err == nil || !strings.Contains(err.Error(), names()) {
		t.Errorf("a section that does not exist must be named, with those that do: %v", err)
	}
}

func TestLatenessIsThatOfTheFirstWriteOfEach(t *testing.T) {
	edge := time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)
	write := func(after time.Duration, verb, resource, name string, code int) request {
		q := request{Verb: verb, StageTimestamp: edge.Add(after)}
		q.User.Username, q.ObjectRef.Resource, q.ObjectRef.Name, q.ResponseStatus.Code = system.ManagerUser, resource, name, code
		return q
	}
	e := &edgeBench{names: []string{"a", "b"}}
	requests := []request{
		write(-time.Second, "patch", "scheduledmachines", "a", 200), // before
		write(1, "create", "events", "a.17", 201),
		write(2, "get", "machines", "a-machine", 404),
		write(3, "create", "planeconfigs", "a-bootstrap", 409),
		write(5*time.Millisecond, "create", "planeconfigs", "a-bootstrap", 201),
		write(9*time.Millisecond, "create", "machines", "a-machine", 201),
		write(7*time.Millisecond, "delete", "machines", "b-machine", 200),
	}
	if got := e.lateness(requests, edge, "", done); len(got) != 2 || got[0] != 5*time.Millisecond || got[1] != 7*time.Millisecond {
		t.Errorf("first writes came after %v, want 5 ms and 7 ms", got)
	}
	if got := e.lateness(requests, edge, "machines", done); len(got) != 2 || got[0] != 9*time.Millisecond {
		t.Errorf("first writes to Machines came after %v, want 9 ms and 7 ms", got)
	}
}

func TestAnAuditLogIsReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log := auditLog{dir: filepath.Dir(path)}
	write := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	write(`{"stage":"ResponseComplete","verb":"delete","objectRef":{"resource":"machines","name":"m"},"responseStatus":{"code":200}}` + "\n")
	write(`{"stage":"ResponseComplete","verb":"patch",`)
	got, err := log.next()
	if err != nil || len(got) != 1 || got[0].what() != "delete machines" || !got[0].lifecycle() {
		t.Fatalf("%+v, %v: want the one that is complete", got, err)
	}
	write(`"objectRef":{"resource":"nodes"}}` + "\n")
	if got, err = log.next(); err != nil || len(got) != 1 || got[0].what() != "patch nodes" {
		t.Errorf("%+v, %v: want what has been completed since", got, err)
	}
}

func TestTableTellsWhatWasMissed(t *testing.T) {
	var out bytes.Buffer
	fast, slow := spread("fast", []time.Duration{time.Millisecond}), spread("slow", []time.Duration{4 * time.Millisecond})
	printTable(&out, []figure{
		fast.against("slow", slow).goal("≤ 2", true), slow.goal("≤ 2", false),
		missing("peer", errors.New("not installed")),
	})
	for _, want := range []string{"≤ 2: met", "0.25 × slow", "≤ 2: MISSED", "not installed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// begin is the time of the first record of a test; each is a second after the one before.
var begin = time.Date(2026, time.March, 2, 17, 0, 0, 0, time.UTC)

// The senders of requests.
const (
	manager = "system:serviceaccount:5spot-system:fivespot-manager"
	core    = "capi-core"
	person  = "jane"
	agent   = "system:serviceaccount:5spot-system:reclaim-agent"
)

// The objects of one machine.
var (
	lab       = judge.Object{Cluster: "management", Group: "cluster.x-k8s.io", Resource: "machines", Namespace: "farm", Name: "office-machine"}
	infra     = judge.Object{Cluster: "management", Group: "infrastructure.cluster.x-k8s.io", Resource: "planemachines", Namespace: "farm", Name: "office-infra"}
	office    = judge.Object{Cluster: "management", Group: "5spot.finos.org", Resource: "scheduledmachines", Namespace: "farm", Name: "office"}
	node      = judge.Object{Cluster: "workload", Resource: "nodes", Name: "box"}
	configMap = judge.Object{Cluster: "workload", Resource: "configmaps", Namespace: "5spot-system", Name: "box"}
	lease     = judge.Object{Cluster: "management", Group: "coordination.k8s.io", Resource: "leases", Namespace: "5spot-system", Name: "leader"}
	event     = judge.Object{Cluster: "management", Group: "events.k8s.io", Resource: "events", Namespace: "farm", Name: "office.1"}
)

// Annotations.
const (
	departure  = "5spot.finos.org/departure"
	mark       = "5spot.finos.org/emergency-reclaim"
	served     = "5spot.finos.org/reclaimed"
	request    = "5spot.finos.org/reclaim-requested"
	preDrain   = "pre-drain.delete.hook.machine.cluster.x-k8s.io/5spot"
	closed     = `{"lane":"scheduled","reason":"WindowClosed","since":"2026-03-02T17:00:00Z","machineUID":"m","actionID":"a"}`
	emergency  = `{"lane":"exempt","reason":"EmergencyReclaim","since":"2026-03-02T17:00:00Z","machineUID":"m","actionID":"a"}`
	killSwitch = `{"lane":"exempt","reason":"KillSwitch","since":"2026-03-02T17:00:00Z","machineUID":"m","actionID":"a"}`
)

// by returns an accepted request with the UID of its object.
func by(user, verb string, obj judge.Object, uid string) judge.Record {
	return judge.Record{User: user, Verb: verb, Object: obj, Code: 200, Sent: &judge.Sent{UID: uid}, Got: &judge.State{UID: uid}}
}

// with returns a copy of r after changes.
func with(r judge.Record, changes ...func(*judge.Record)) judge.Record {
	if r.Sent != nil {
		sent := *r.Sent
		sent.Annotations, sent.Changes = maps.Clone(sent.Annotations), slices.Clone(sent.Changes)
		r.Sent = &sent
	}
	if r.Got != nil {
		got := *r.Got
		got.Annotations, got.Labels = maps.Clone(got.Annotations), maps.Clone(got.Labels)
		r.Got = &got
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// sets makes a request set an annotation, or remove it if the value is empty.
func sets(key, value string) func(*judge.Record) {
	return func(r *judge.Record) {
		if r.Sent.Annotations == nil {
			r.Sent.Annotations = map[string]*string{}
		}
		r.Sent.Changes = append(r.Sent.Changes, "metadata/annotations")
		if value == "" {
			r.Sent.Annotations[key] = nil
			return
		}
		r.Sent.Annotations[key] = &value
		shows(key, value)(r)
	}
}

// shows sets an annotation in the response.
func shows(key, value string) func(*judge.Record) {
	return func(r *judge.Record) {
		if r.Got.Annotations == nil {
			r.Got.Annotations = map[string]string{}
		}
		r.Got.Annotations[key] = value
	}
}

// labeled sets a label in the response.
func labeled(key, value string) func(*judge.Record) {
	return func(r *judge.Record) {
		if r.Got.Labels == nil {
			r.Got.Labels = map[string]string{}
		}
		r.Got.Labels[key] = value
	}
}

func deleting(r *judge.Record) { r.Got.Deleting = true }
func gone(r *judge.Record)     { r.Got.Deleting, r.Got.Gone = true, true }
func created(r *judge.Record)  { r.Code = 201 }
func refused(r *judge.Record)  { r.Code, r.Got = 500, nil }
func unlogged(r *judge.Record) { r.Sent, r.Got = nil, nil }

// ofOffice makes a Machine belong to the ScheduledMachine office, in its Cluster.
func ofOffice(r *judge.Record) {
	labeled("5spot.finos.org/scheduled-machine", "office")(r)
	labeled("cluster.x-k8s.io/cluster-name", "lab")(r)
}

// A ruleCase is the expected result of a rule for some records.
type ruleCase struct {
	reason  string
	records []judge.Record
	// judged is the number of verdicts.
	judged int
	// broken are the texts of the breaks.
	broken []string
}

// judged runs a rule on each case.
func judged(t *testing.T, rule func() judge.Rule, cases map[string]ruleCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ruling, err := judge.Run(placed(tc.records), rule())
			if err != nil {
				t.Fatal(err)
			}
			var broken []string
			for _, v := range ruling.Breaks {
				if v.Rule != rule().Name() || v.Should == "" || len(v.IDs) == 0 || v.At.IsZero() || v.Object == (judge.Object{}) {
					t.Errorf("the break does not say all: %+v", v)
				}
				broken = append(broken, v.Broken)
			}
			if diff := cmp.Diff(tc.broken, broken); diff != "" {
				t.Errorf("%s\nbreaks: -want, +got:\n%s", tc.reason, diff)
			}
			if got := ruling.Judged[rule().Name()]; got != tc.judged {
				t.Errorf("%s\n%d cases were judged, not %d", tc.reason, got, tc.judged)
			}
		})
	}
}

// placed sets missing IDs and versions of records, and times a second apart.
func placed(records []judge.Record) func(func(judge.Record, error) bool) {
	return func(yield func(judge.Record, error) bool) {
		for i, r := range records {
			r.ID = string(rune('a' + i))
			if r.At.IsZero() {
				r.At = begin.Add(time.Duration(i) * time.Second)
			}
			if r.Got != nil && r.Got.Version == 0 {
				got := *r.Got
				got.Version, r.Got = int64(i+1), &got
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

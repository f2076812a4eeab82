// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// machine is active and healthy, modified by changes.
func machine(name string, changes ...func(*v1alpha1.ScheduledMachine)) *v1alpha1.ScheduledMachine {
	m := &v1alpha1.ScheduledMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "farm", ResourceVersion: "1", Generation: 3, Finalizers: []string{v1alpha1.ScheduledMachineFinalizer}},
		Spec: v1alpha1.ScheduledMachineSpec{
			ClusterName: "prod",
			Schedule: v1alpha1.Schedule{
				DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}, Timezone: "America/New_York",
			},
		},
		Status: v1alpha1.ScheduledMachineStatus{
			ObservedGeneration: 3,
			Phase:              v1alpha1.PhaseActive,
			Message:            "Machine is healthy and running",
			InSchedule:         true,
			MachineRef:         &v1alpha1.ChildReference{Kind: "Machine", Name: name + "-machine"},
			NodeRef:            &v1alpha1.NodeReference{Name: "worker-7"},
			NextCleanup:        in(6 * time.Hour),
			NextActivation:     in(21 * time.Hour),
			Conditions: []metav1.Condition{
				condition("Ready", metav1.ConditionTrue, "MachineRunning", "Machine is healthy and running"),
				condition("Scheduled", metav1.ConditionTrue, "ScheduleActive", "Current time is within schedule: mon-fri 9-17"),
			},
		},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func in(d time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(d))
	return &t
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: *in(-3 * time.Hour)}
}

func unreadable(m *v1alpha1.ScheduledMachine) {
	m.Spec.Schedule.HoursOfDay = []string{"25"}
	m.Status.NextActivation, m.Status.NextCleanup = nil, nil
	m.Status.Conditions = []metav1.Condition{
		condition("Ready", metav1.ConditionTrue, "MachineRunning", "Machine is healthy and running"),
		condition("Scheduled", metav1.ConditionUnknown, "ScheduleUnreadable", "Hour must be 0-23, got: 25"),
	}
}

func leaving(m *v1alpha1.ScheduledMachine) {
	m.Status.Phase, m.Status.InSchedule = v1alpha1.PhaseShuttingDown, false
	m.Status.Conditions = []metav1.Condition{
		condition("Ready", metav1.ConditionFalse, "ShuttingDown", "Waiting for the drain"),
		condition("MachineReady", metav1.ConditionFalse, "Draining", "* Pods with eviction blocked:\n  * shop/db-0: PodDisruptionBudget db"),
	}
}

func going(m *v1alpha1.ScheduledMachine) {
	leaving(m)
	m.DeletionTimestamp = in(-time.Minute)
}

func gated(m *v1alpha1.ScheduledMachine) {
	leaving(m)
	m.Status.Conditions = append(m.Status.Conditions, condition("DepartureGated", metav1.ConditionTrue, "BlastRadiusCap",
		"3 of 60 machines left in the last 10 minutes:\nthe next may leave in the course of the next 10"))
}

func disabled(m *v1alpha1.ScheduledMachine) {
	off := false
	m.Spec.Schedule.Enabled = &off
	m.Status = v1alpha1.ScheduledMachineStatus{
		ObservedGeneration: 2, Phase: v1alpha1.PhaseDisabled, Message: "Schedule auto-disabled by emergency reclaim (process-match: java)",
	}
}

func killed(m *v1alpha1.ScheduledMachine) {
	m.Spec.KillSwitch = true
	m.Status.Phase, m.Status.Message = v1alpha1.PhaseTerminated, "Removed by the kill switch"
	m.Status.Conditions, m.Status.NodeRef = nil, nil
}

func fresh(m *v1alpha1.ScheduledMachine) { m.Status = v1alpha1.ScheduledMachineStatus{} }

func overdue(m *v1alpha1.ScheduledMachine) { m.Status.NextCleanup = in(-5 * time.Minute) }

func constant(m *v1alpha1.ScheduledMachine) {
	m.Spec.Schedule.DaysOfWeek, m.Spec.Schedule.HoursOfDay = []string{"mon-sun"}, []string{"0-23"}
	m.Status.NextActivation, m.Status.NextCleanup = nil, nil
}

func hostile(m *v1alpha1.ScheduledMachine) {
	m.Status.Conditions = nil
	m.Status.Message = "\x1b]0;owned\x07"
}

func TestStatusListsANamespace(t *testing.T) {
	t.Parallel()
	list := v1alpha1.ScheduledMachineList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachineList"},
		Items: []v1alpha1.ScheduledMachine{
			*machine("active"), *machine("constant", constant), *machine("disabled", disabled), *machine("fresh", fresh), *machine("gated", gated), *machine("going", going),
			*machine("hostile", hostile), *machine("killed", killed), *machine("leaving", leaving), *machine("overdue", overdue), *machine("paused", pausedMachine), *machine("unreadable", unreadable),
		},
	}
	config := cluster(t, map[string]any{
		"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines": list,
		"/apis/5spot.finos.org/v1alpha1/scheduledmachines":                 list,
	})
	const want = `NAME         STATE        NEXT           WHY
active       Running      closes in 6h   Machine is healthy and running
constant     Running      -              Machine is healthy and running
disabled     Off          -              Schedule auto-disabled by emergency...
fresh        Pending      -              no controller has seen it yet
gated        Held         opens in 21h   3 of 60 machines left in the last 10...
going        Deleting     -              Waiting for the drain
hostile      NotReady     closes in 6h   ` + "\ufffd]0;owned\ufffd" + `
killed       KillSwitch   -              Removed by the kill switch
leaving      Leaving      closes in 6h   Waiting for the drain
overdue      Running      overdue 5m     no controller has acted on it for 5m...
paused       Paused       -              it is paused: nothing is done, not e...
unreadable   Unreadable   -              Hour must be 0-23, got: 25
`
	const wide = `NAME         CLUSTER   PHASE          READY     NODE       NEXT           WHY
active       prod      Active         True      worker-7   closes in 6h   Machine is healthy and running
constant     prod      Active         True      worker-7   -              Machine is healthy and running
disabled     prod      Disabled       Unknown   -          -              Schedule auto-disabled by emergency reclaim (process-match: java)
fresh        prod      Pending        Unknown   -          -              no controller has seen it yet
gated        prod      ShuttingDown   False     worker-7   opens in 21h   3 of 60 machines left in the last 10 minutes: the next may leave in the course of the next 10
going        prod      ShuttingDown   False     worker-7   -              Waiting for the drain
hostile      prod      Active         Unknown   worker-7   closes in 6h   ` + "\ufffd]0;owned\ufffd" + `
killed       prod      Terminated     Unknown   -          -              Removed by the kill switch
leaving      prod      ShuttingDown   False     worker-7   closes in 6h   Waiting for the drain
overdue      prod      Active         True      worker-7   overdue 5m     no controller has acted on it for 5m: is a manager running? One with --watch-filter serves only objects with the label cluster.x-k8s.io/watch-filter
paused       prod      Active         True      worker-7   -              it is paused: nothing is done, not even for its owner
unreadable   prod      Active         True      worker-7   -              Hour must be 0-23, got: 25
`
	if diff := cmp.Diff(result{Out: wide}, run("", "status", "-o", "wide", config)); diff != "" {
		t.Errorf("wide: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(result{Out: want}, run("", "status", config)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	everywhere := run("", "status", "-A", config)
	if everywhere.Code != 0 || everywhere.Out[:len("NAMESPACE")] != "NAMESPACE" {
		t.Errorf("status -A: %+v", everywhere)
	}
}

// An owner's Role may be limited to named machines.
func TestStatusWithoutThePermissionToList(t *testing.T) {
	t.Parallel()
	got := run("", "status", cluster(t, map[string]any{
		"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines": refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "ada cannot list"),
	}))
	want := "error: listing scheduledmachines: ada cannot list; if you may see only some machines, name one: kubectl 5spot status NAME\n"
	if diff := cmp.Diff(result{Err: want, Code: 1}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestStatusShowsOneMachine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.ScheduledMachine)
		want   string
	}{
		"Paused": {
			reason: "What the conditions say is not what happens.",
			change: pausedMachine,
			want: `Name:        office
Namespace:   farm
Cluster:     prod
Schedule:    mon-fri 9-17, America/New_York
Phase:       Active, inside the window
Why:         it is paused: nothing is done, not even for its owner
Next:        nothing: paused
Machine:     office-machine
Node:        worker-7
Conditions:
  Ready       True   MachineRunning   3h   Machine is healthy and running
  Scheduled   True   ScheduleActive   3h   Current time is within schedule: mon-fri 9-17
`,
		},
		"Disabled": {
			reason: "An old status is marked, and nothing is said to come.",
			change: disabled,
			want: `Name:        office
Namespace:   farm
Cluster:     prod
Schedule:    mon-fri 9-17, America/New_York
Phase:       Disabled, its schedule is off
Why:         Schedule auto-disabled by emergency reclaim (process-match: java)
Next:        nothing: disabled
Machine:     -
Node:        -
Note:        the controller has not seen the latest change yet
Conditions: none
`,
		},
		"Killed": {
			reason: "Windows go on opening; nothing follows from it.",
			change: func(m *v1alpha1.ScheduledMachine) { killed(m); m.Status.MachineRef = nil },
			want: `Name:        office
Namespace:   farm
Cluster:     prod
Schedule:    mon-fri 9-17, America/New_York
Phase:       Terminated, inside the window
Why:         Removed by the kill switch
Next:        nothing: the kill switch is on
Machine:     -
Node:        -
Conditions: none
`,
		},
		"Unreadable": {
			reason: "Unknown is not never.",
			change: unreadable,
			want: `Name:        office
Namespace:   farm
Cluster:     prod
Schedule:    unreadable, America/New_York
Phase:       Active, inside the window
Why:         Hour must be 0-23, got: 25
Next:        unknown: the schedule is unreadable
Machine:     office-machine
Node:        worker-7
Conditions:
  Ready       True      MachineRunning       3h   Machine is healthy and running
  Scheduled   Unknown   ScheduleUnreadable   3h   Hour must be 0-23, got: 25
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := cluster(t, map[string]any{
				"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines/office": machine("office", tc.change),
			})
			if diff := cmp.Diff(result{Out: tc.want}, run("", "status", "office", config)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestStatusOfNothing(t *testing.T) {
	t.Parallel()
	config := cluster(t, map[string]any{
		"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines": v1alpha1.ScheduledMachineList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachineList"},
		},
	})
	if diff := cmp.Diff(result{Err: "No ScheduledMachines found in namespace farm.\n"}, run("", "status", config)); diff != "" {
		t.Errorf("for people: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(result{Out: "[]\n"}, run("", "status", config, "-o", "json")); diff != "" {
		t.Errorf("for programs: -want, +got:\n%s", diff)
	}
}

func TestStatusWritesJSON(t *testing.T) {
	t.Parallel()
	config := cluster(t, map[string]any{
		"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines/office": machine("office"),
	})
	got := run("", "status", "office", "-o", "json", config)
	var views []map[string]any
	if err := json.Unmarshal([]byte(got.Out), &views); err != nil || len(views) != 1 {
		t.Fatalf("%v\n%+v", err, got)
	}
	delete(views[0], "conditions")
	want := map[string]any{
		"namespace": "farm", "name": "office", "cluster": "prod",
		"schedule": "mon-fri 9-17", "timezone": "America/New_York", "enabled": true, "killSwitch": false,
		"paused": false, "phase": "Active", "inSchedule": true, "why": "Machine is healthy and running",
		"nextActivation": "2025-01-16T14:00:00Z", "nextCleanup": "2025-01-15T23:00:00Z",
		"machine": "office-machine", "node": "worker-7", "stale": false,
	}
	if diff := cmp.Diff(want, views[0]); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

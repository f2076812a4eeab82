// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// kept gives a machine a closed window and a gate condition with the planner's message.
func kept(reason departurecap.Reason, ago time.Duration) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		text := "At most 5% of the machines (at least one) start to leave within 10s: others go first"
		switch reason {
		case v1alpha1.WarmUpReason:
			text = "The manager became leader a moment ago: no unscheduled departure starts before the lease of the previous leader has expired"
		case v1alpha1.WipeQuarantineReason:
			text = "Nearly all machines of the Cluster would leave at once: three checks confirm that first, 20s. If it is a mistake, hold all departures of the Cluster now (kubectl 5spot hold-departures)"
		default:
		}
		c := condition("DepartureGated", metav1.ConditionTrue, string(reason), text)
		c.LastTransitionTime = *in(-ago)
		m.Status.InSchedule, m.Status.NextCleanup, m.Status.NextCleanupAnnouncedTime = false, in(-ago), in(-ago-time.Hour)
		m.Status.Conditions = append(m.Status.Conditions, c)
	}
}

// frozen gives a machine the status of one that would join if actuation were not paused.
func frozen(m *v1alpha1.ScheduledMachine) {
	m.Status.MachineRef, m.Status.NodeRef = nil, nil
	m.Status.Conditions = []metav1.Condition{
		condition("Ready", metav1.ConditionFalse, "ActuationPaused", "Actuation is paused in the manager: nothing is carried out; otherwise: Machine is being created"),
	}
}

// leavingMachine is the Machine of a departure that has begun.
func leavingMachine(name string, reason v1alpha1.DepartureReason, ago time.Duration) metav1.PartialObjectMetadata {
	m := ofScheduled(name)
	m.Annotations = map[string]string{v1alpha1.DepartureAnnotation: v1alpha1.NewDeparture(reason, now.Add(-ago), "a1").String()}
	return m
}

func ofScheduled(name string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "farm", Name: name + "-machine",
		Labels: map[string]string{v1alpha1.ScheduledMachineLabel: name, clusterv1.ClusterNameLabel: "prod"},
	}}
}

// fleet serves the objects that rails reads, of one namespace and of all namespaces.
func fleet(t *testing.T, machines any, objects ...*v1alpha1.ScheduledMachine) string {
	t.Helper()
	list := v1alpha1.ScheduledMachineList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachineList"}}
	for _, m := range objects {
		list.Items = append(list.Items, *m)
	}
	return cluster(t, map[string]any{
		"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines": list,
		"/apis/5spot.finos.org/v1alpha1/scheduledmachines":                 list,
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/farm/machines":          machines,
		"/apis/cluster.x-k8s.io/v1beta2/machines":                          machines,
	})
}

func metadata(items ...metav1.PartialObjectMetadata) metav1.PartialObjectMetadataList {
	return metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Items: items,
	}
}

// unannounced gives a machine a window end that was not announced.
func unannounced(m *v1alpha1.ScheduledMachine) { m.Status.NextCleanupAnnouncedTime = nil }

func inLab(m *v1alpha1.ScheduledMachine) { m.Spec.ClusterName = "lab" }

func TestRailsShowsEveryCluster(t *testing.T) {
	t.Parallel()
	deleting := ofScheduled("by-hand")
	deleting.DeletionTimestamp = in(-time.Minute)
	alone := ofScheduled("alone")
	alone.DeletionTimestamp, alone.Annotations = in(-50*time.Second), map[string]string{v1alpha1.PreDrainHookAnnotation: ""}
	config := fleet(t, metadata(alone, leavingMachine("going", v1alpha1.WindowClosed, 2*time.Minute), leavingMachine("gone", v1alpha1.ScheduledMachineDeleted, time.Minute), deleting, ofScheduled("office")),
		machine("office"), machine("later", func(m *v1alpha1.ScheduledMachine) { m.Status.NextCleanup = in(7 * time.Hour) }),
		machine("due", kept(departurecap.BlastRadiusCap, 4*time.Minute)), machine("wiped", kept(v1alpha1.WipeQuarantineReason, 20*time.Second)),
		machine("frozen", frozen), machine("stopped", pausedMachine), machine("going", leaving), machine("by-hand"),
		machine("other", inLab, overdue))
	const lab = `farm/lab: 1 ScheduledMachine, nothing is kept, and nothing leaves
  But no controller has acted on other for 5m: is a manager running? One with
    --watch-filter serves only objects with the label
    cluster.x-k8s.io/watch-filter.
`
	const prod = `farm/prod: 8 ScheduledMachines, 2 paused, 2 held, 1 capped, 3 leaving
  NAME            STATE     SINCE   REASON            LANE
  stopped         paused    -       Paused            -
  frozen          paused    3h      ActuationPaused   -
  alone-machine   held      50s     -                 -
  wiped           held      20s     WipeQuarantine    -
  due             capped    4m      BlastRadiusCap    -
  going           leaving   2m      WindowClosed      scheduled
  by-hand         leaving   60s     -                 -
  gone-machine    leaving   60s     Deleted           unscheduled
  stopped: it is paused: nothing is done, not even for its owner
  frozen: Actuation is paused in the manager: nothing is carried out; otherwise:
    Machine is being created
  alone-machine: its Machine is being deleted without its ScheduledMachine, and
    waits for its turn
  wiped: Nearly all machines of the Cluster would leave at once: three checks
    confirm that first, 20s. If it is a mistake, hold all departures of the
    Cluster now (kubectl 5spot hold-departures)
  due: At most 5% of the machines (at least one) start to leave within 10s:
    others go first
  by-hand: its Machine is being deleted, and its departure is not admitted yet
  Paused: no paused machine starts to leave until the pause ends; none is
    waiting to leave
  Leaves next: due
  Next: office closes in 6h: Wed 2025-01-15 18:00:00 EST (2025-01-15T23:00:00Z)
`
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"Namespace": {[]string{"rails"}, lab + "\n" + prod},
		"All":       {[]string{"rails", "-A"}, lab + "\n" + prod},
		"One":       {[]string{"rails", "--cluster", "prod"}, prod},
		"Quiet":     {[]string{"rails", "--cluster=lab"}, lab},
	} {
		if diff := cmp.Diff(result{Out: tc.want}, run("", append(tc.args, config)...)); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", name, diff)
		}
	}
	want := result{Err: "No ScheduledMachines found of Cluster mars in namespace farm.\n"}
	if diff := cmp.Diff(want, run("", "rails", "--cluster", "mars", config)); diff != "" {
		t.Errorf("None: -want, +got:\n%s", diff)
	}
}

// TestRailsShowsTheConditionsMessage compares the plugin's text with the planner's message, for every reason.
func TestRailsShowsTheConditionsMessage(t *testing.T) {
	t.Parallel()
	for reason, state := range map[departurecap.Reason]string{
		v1alpha1.ActuationPausedReason: "paused", v1alpha1.DeparturesHeldReason: "held", v1alpha1.ClockSuspectReason: "held", v1alpha1.WarmUpReason: "held",
		v1alpha1.WipeQuarantineReason: "held", departurecap.BlastRadiusCap: "capped", "LaterVersion": "held",
	} {
		m := machine("office", kept(reason, 20*time.Second))
		said := m.Status.Conditions[len(m.Status.Conditions)-1]
		got := run("", "rails", "-o", "json", fleet(t, metadata(), m))
		var views []struct {
			Machines []struct {
				State, Reason, Message string
				Since                  metav1.Time
			}
		}
		if err := json.Unmarshal([]byte(got.Out), &views); err != nil || len(views) != 1 || len(views[0].Machines) != 1 {
			t.Fatalf("%v: %+v", err, got)
		}
		row := views[0].Machines[0]
		if row.State != state || row.Reason != said.Reason || row.Message != said.Message || !row.Since.Equal(&said.LastTransitionTime) {
			t.Errorf("%s: got %+v, want %s and %+v", reason, row, state, said)
		}
		why := run("", "why", "office", cluster(t, map[string]any{path("office"): m}))
		if !strings.Contains(why.Out, "Because:   "+said.Message+"\n") || strings.Contains(why.Out, "no controller has acted") || strings.Contains(why.Out, "overdue") {
			t.Errorf("%s: why says\n%s", reason, why.Out)
		}
		if list := run("", "status", "office", cluster(t, map[string]any{path("office"): m})); !strings.Contains(list.Out, "Why:         "+said.Message+"\n") {
			t.Errorf("%s: status says\n%s", reason, list.Out)
		}
	}
}

// TestRailsNamesTheMissingPermission runs as a user without permission to list one of the two kinds.
func TestRailsNamesTheMissingPermission(t *testing.T) {
	t.Parallel()
	refused := refusal(http.StatusForbidden, metav1.StatusReasonForbidden, `cannot list resource "machines" in the namespace "farm"`)
	const wayOut = "; rails needs the permission list on ScheduledMachines and on Machines: for a namespace in which you have both, add -n NAMESPACE; for one machine, use kubectl 5spot why NAME\n"
	got := run("", "rails", fleet(t, refused, machine("office", kept(v1alpha1.WarmUpReason, time.Second))))
	want := result{Err: `error: listing machines: cannot list resource "machines" in the namespace "farm"` + wayOut, Code: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	got = run("", "rails", cluster(t, map[string]any{"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines": refused}))
	if got.Code != 1 || got.Out != "" || !strings.HasSuffix(got.Err, wayOut) {
		t.Errorf("got %+v", got)
	}
}

// TestRailsReportsThatMachinesAreUnknown has an API server that cannot list Machines.
func TestRailsReportsThatMachinesAreUnknown(t *testing.T) {
	t.Parallel()
	config := fleet(t, refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "etcd is away"), machine("office", constant), machine("x", kept(v1alpha1.WarmUpReason, time.Second)))
	want := result{
		Out: `farm/prod: 2 ScheduledMachines, 1 held, who is leaving is unknown
  NAME   STATE   SINCE   REASON   LANE
  x      held    1s      WarmUp   -
  x: The manager became leader a moment ago: no unscheduled departure starts
    before the lease of the previous leader has expired
`,
		Err: "error: listing machines: etcd is away\n", Code: 1,
	}
	if diff := cmp.Diff(want, run("", "rails", config)); diff != "" {
		t.Errorf("Unknown is not none.\n-want, +got:\n%s", diff)
	}
	if got := run("", "rails", "-o", "json", config); got.Code != 1 || !strings.Contains(got.Out, `"leavingUnknown": true`) {
		t.Errorf("for programs: %+v", got)
	}
}

// TestRailsShowsAPausedDeparture pauses actuation after a departure has begun.
func TestRailsShowsAPausedDeparture(t *testing.T) {
	t.Parallel()
	got := run("", "rails", "-o", "json", fleet(t, metadata(leavingMachine("office", v1alpha1.WindowClosed, time.Hour)), machine("office", kept(v1alpha1.ActuationPausedReason, time.Minute))))
	const want = `[
  {
    "namespace": "farm",
    "cluster": "prod",
    "total": 1,
    "machines": [
      {
        "name": "office",
        "state": "paused",
        "reason": "ActuationPaused",
        "message": "At most 5% of the machines (at least one) start to leave within 10s: others go first",
        "since": "2025-01-15T16:59:00Z",
        "machine": "office-machine",
        "lane": "scheduled",
        "actionID": "a1"
      }
    ]
  }
]
`
	if diff := cmp.Diff(result{Out: want}, got); diff != "" {
		t.Errorf("What keeps it comes first, and what began is not forgotten.\n-want, +got:\n%s", diff)
	}
}

// TestRailsShowsWhoLeavesAfterThePause has paused machines, some of them outside their window.
func TestRailsShowsWhoLeavesAfterThePause(t *testing.T) {
	t.Parallel()
	evening := func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = []string{"18-22"} }
	absent := func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef = nil }
	off := func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.Enabled = new(false) }
	noReading := func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = []string{"25"} }
	for name, tc := range map[string]struct {
		reason   string
		machines []*v1alpha1.ScheduledMachine
		want     string
	}{
		"None": {
			"An open window, a schedule that is off or unreadable, and no Machine.",
			[]*v1alpha1.ScheduledMachine{machine("a", pausedMachine), machine("b", pausedMachine, evening, off), machine("c", pausedMachine, noReading), machine("d", pausedMachine, evening, absent)},
			"  Paused: no paused machine starts to leave until the pause ends; none is\n    waiting to leave\n",
		},
		"One": {
			"The status still says that the window is open.",
			[]*v1alpha1.ScheduledMachine{machine("a", pausedMachine), machine("b", pausedMachine, evening)},
			"  Paused: no paused machine starts to leave until the pause ends; 1 machine is\n    waiting to leave: b\n",
		},
		"Several": {
			"Whatever makes it leave.",
			[]*v1alpha1.ScheduledMachine{
				machine("a", pausedMachine, evening), machine("b", pausedMachine, func(m *v1alpha1.ScheduledMachine) { m.DeletionTimestamp = in(-time.Minute) }),
				machine("c", pausedMachine, func(m *v1alpha1.ScheduledMachine) { m.Spec.KillSwitch = true }),
				machine("d", pausedMachine, func(m *v1alpha1.ScheduledMachine) { m.Annotations[v1alpha1.EmergencyReclaimAnnotation] = "x" }),
			},
			"  Paused: no paused machine starts to leave until the pause ends; 4 machines are\n    waiting to leave: a, b and 2 more\n",
		},
		"NotPaused": {"Nothing is said of a pause.", []*v1alpha1.ScheduledMachine{machine("a", evening)}, ""},
	} {
		got := run("", "rails", fleet(t, metadata(), tc.machines...)).Out
		if !strings.Contains(got, tc.want) || tc.want == "" && strings.Contains(got, "Paused:") {
			t.Errorf("%s: %s\nwant %q in:\n%s", name, tc.reason, tc.want, got)
		}
	}
}

func TestWhyExplainsAHeldMachine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		object *v1alpha1.ScheduledMachine
		want   []string
	}{
		"Capped": {
			"Waiting is all there is to do, but for the owner.", machine("office", kept(departurecap.BlastRadiusCap, 4*time.Minute)),
			[]string{
				"State:     Held: a safety rail holds its departure, and it stays in the cluster meanwhile\n",
				"kubectl 5spot -n farm rails --cluster prod\n", "to have the machine now, without waiting: kubectl 5spot -n farm give-back office\n",
			},
		},
		"Frozen": {
			"The manager's pause is the cause, not the machine.", machine("office", frozen),
			[]string{
				"State:     Paused: actuation is paused in the manager: nothing is done, not even for its owner\n",
				"Because:   Actuation is paused in the manager: nothing is carried out; otherwise: Machine is being created\n",
			},
		},
		"OwnerWaits": {
			"The owner is not told that it is being given back.", machine("office", frozen, withRequest(java)),
			[]string{"State:     Paused: actuation is paused in the manager", "Note:      its owner has asked for it, and the request is kept\n"},
		},
		"OwnerFirst": {
			"A request waits for nobody.", machine("office", kept(departurecap.BlastRadiusCap, time.Minute), withRequest(java)),
			[]string{"State:     Returning: "},
		},
		"Deleting": {
			"What is deleted waits, too.", machine("office", going, kept(v1alpha1.WipeQuarantineReason, time.Minute)),
			[]string{
				"State:     Held: its ScheduledMachine is being deleted, and a safety rail holds the machine\n",
				"Because:   Nearly all machines of the Cluster would leave at once",
				"without waiting: kubectl 5spot -n farm give-back office\n",
			},
		},
		"DeletingAndKilled": {
			"A kill switch is exempt.", machine("office", going, kept(v1alpha1.WipeQuarantineReason, time.Minute), func(m *v1alpha1.ScheduledMachine) { m.Spec.KillSwitch = true }),
			[]string{"State:     Deleting: "},
		},
		"Wipe": {
			"The planner waits half a minute, so why prints the command.", machine("office", kept(v1alpha1.WipeQuarantineReason, 10*time.Second)),
			[]string{
				"three checks confirm that first, 20s. If it is a mistake, hold all departures of the Cluster now (kubectl 5spot hold-departures)\n",
				"Do:        if the machines are not meant to leave, hold all departures now: kubectl 5spot -n farm hold-departures prod\n",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run("", "why", "office", cluster(t, map[string]any{path("office"): tc.object}))
			for _, want := range tc.want {
				if got.Code != 0 || !strings.Contains(got.Out, want) {
					t.Errorf("%s\nwant %q in\n%s%s", tc.reason, want, got.Out, got.Err)
				}
			}
		})
	}
}

// TestRailsShowsWhoLeavesNext has waiting machines whose rank differs from the order in which they started to wait.
func TestRailsShowsWhoLeavesNext(t *testing.T) {
	t.Parallel()
	ranked := func(priority int32) func(*v1alpha1.ScheduledMachine) {
		return func(m *v1alpha1.ScheduledMachine) { m.Spec.Priority = &priority }
	}
	got := run("", "rails", "-o", "json", fleet(t, metadata(),
		machine("important", kept(departurecap.BlastRadiusCap, 9*time.Minute), ranked(90)), machine("late", kept(departurecap.BlastRadiusCap, 4*time.Minute)),
		machine("pruned", kept(departurecap.BlastRadiusCap, 8*time.Minute), unannounced), machine("later", kept(departurecap.BlastRadiusCap, 3*time.Minute)),
		machine("least", kept(departurecap.BlastRadiusCap, time.Minute), ranked(1)), machine("aged", kept(departurecap.BlastRadiusCap, 11*time.Minute), ranked(90), unannounced)))
	var views []struct {
		LeavesNext string
		Machines   []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(got.Out), &views); err != nil || len(views) != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	var order []string
	for _, row := range views[0].Machines {
		order = append(order, row.Name)
	}
	if diff := cmp.Diff([]string{"aged", "least", "late", "later", "pruned", "important"}, order); diff != "" || views[0].LeavesNext != "aged" {
		t.Errorf("next is %q\n-want, +got:\n%s", views[0].LeavesNext, diff)
	}
}

// TestRailsReportsALateDeparture has departures within their budget, over it, and without one.
func TestRailsReportsALateDeparture(t *testing.T) {
	t.Parallel()
	ends := func(after time.Duration) func(*v1alpha1.ScheduledMachine) {
		return func(m *v1alpha1.ScheduledMachine) {
			m.Status.Departure = &v1alpha1.DepartureStatus{Reason: v1alpha1.WindowClosed, Lane: v1alpha1.ScheduledLane, DeadlineTime: new(metav1.NewTime(now.Add(after)))}
		}
	}
	got := run("", "rails", fleet(t, metadata(leavingMachine("edited", v1alpha1.WindowClosed, 9*time.Minute),
		leavingMachine("hangs", v1alpha1.ScheduledMachineDeleted, 7*time.Minute), leavingMachine("drains", v1alpha1.WindowClosed, 5*time.Minute),
		leavingMachine("patient", v1alpha1.WindowClosed, 6*time.Minute), leavingMachine("killed", v1alpha1.KilledByPerson, 8*time.Minute)),
		machine("hangs", going, ends(-2*time.Minute)), machine("drains", leaving, ends(0)), machine("patient", leaving, ends(time.Hour)),
		machine("killed", killed), machine("edited", leaving, ends(time.Hour))))
	const want = `farm/prod: 5 ScheduledMachines, 5 leaving
  NAME      STATE     SINCE   REASON         LANE
  edited    leaving   9m      WindowClosed   scheduled
  killed    leaving   8m      KillSwitch     exempt
  hangs     leaving   7m      Deleted        unscheduled
  patient   leaving   6m      WindowClosed   scheduled
  drains    leaving   5m      WindowClosed   scheduled
  hangs: late, its grace ended 2m ago; it counts as leaving until its Machine is
    gone
`
	if diff := cmp.Diff(result{Out: want}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

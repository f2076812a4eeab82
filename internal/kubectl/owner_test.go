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
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// withRequest adds a request in progress to a machine.
func withRequest(r v1alpha1.ReclaimRecord) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		m.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: r.String()}
	}
}

// reclaimed adds a served request to a machine.
func reclaimed(r v1alpha1.ReclaimRecord) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		disabled(m)
		m.Status.ObservedGeneration = m.Generation
		m.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: r.String()}
	}
}

var (
	java = v1alpha1.ReclaimRecord{Node: "worker-7", NodeUID: types.UID("u1"), Reason: "process-match: java", RequestedAt: "2025-01-15T14:00:00Z"}
	ada  = v1alpha1.PersonsRequest("worker-7", "Ada needs it", now)
)

func taking(m *v1alpha1.ScheduledMachine) { m.Status.Phase = v1alpha1.PhaseEmergencyRemove }

func away(m *v1alpha1.ScheduledMachine) {
	m.Status.Phase, m.Status.InSchedule = v1alpha1.PhaseInactive, false
	m.Status.MachineRef, m.Status.NodeRef = nil, nil
}

func pausedMachine(m *v1alpha1.ScheduledMachine) {
	m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
}

const (
	takeBack    = "office: asked. When 5-Spot sees it, the machine leaves the cluster, without drain; then its schedule is turned off.\n"
	whilePaused = "requested, but it or its Cluster is paused: not even its owner's request is served until the pause ends"
	noManager   = "no controller has acted on it for 5m: is a manager running? One with --watch-filter serves only objects with the label cluster.x-k8s.io/watch-filter"
	noShard     = "no controller has acted on it for 5m: is a manager running with --watch-filter=b, or without a filter?"
)

// unserved gives a machine a change that no manager has acted on, in a shard or not.
func unserved(shard string) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		m.Generation++
		m.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl-patch", Time: in(-5 * 60e9), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:5spot.finos.org/emergency-reclaim":{}}},"f:spec":{"f:schedule":{"f:enabled":{}}}}`)},
			{Manager: "5spot-controller", Subresource: "status", Time: in(0), FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)},
		}
		if shard != "" {
			m.Labels = map[string]string{clusterv1.WatchLabel: shard}
		}
	}
}

func said(text string) result { return result{Out: text} }

func TestGiveBack(t *testing.T) {
	t.Parallel()
	const written = `kubectl-5spot: map[metadata:map[annotations:map[5spot.finos.org/emergency-reclaim:{"node":"worker-7","reason":"asked by a person: Ada needs it","requestedAt":"2025-01-15T17:00:00Z"}]]]`
	cases := map[string]struct {
		reason  string
		object  *v1alpha1.ScheduledMachine
		want    result
		written []string
	}{
		"Running": {"The request is all that is written: the controller does the rest.", machine("office"), said(takeBack), []string{written}},
		"Away": {
			"The owner who asks before the window opens does not want the machine to join.", machine("office", away),
			said("office: asked. It has no machine in the cluster now; its schedule is turned off, so that none joins.\n"),
			[]string{strings.Replace(written, "worker-7", "", 1)},
		},
		"OffButThere": {
			"A schedule that is off leaves the machine in the cluster.",
			machine("office", func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.Enabled = new(false) }),
			said(takeBack),
			[]string{written},
		},
		"Leaving": {"A drain is no reason to wait.", machine("office", leaving), said(takeBack), []string{written}},
		"Asked": {
			"The first request stands.", machine("office", withRequest(java)),
			said("office: it is being given back already: its owner started a program that matches java.\n"), nil,
		},
		"GivenBack": {
			"A machine that was given back is left alone.", machine("office", reclaimed(java)),
			said("office: nothing to give back: it has no machine in the cluster, and its schedule is off.\n"), nil,
		},
		"OffUnseen": {
			"While the controller has not seen that it is off, a machine may be on its way.",
			machine("office", disabled),
			said(takeBack),
			[]string{strings.Replace(written, "worker-7", "", 1)},
		},
		"Paused": {
			"The request is remembered; a script must not believe that the machine is back.", machine("office", pausedMachine),
			result{Err: "error: office: " + whilePaused + "\n", Code: 1},
			[]string{written},
		},
		"PausedAndGivenBack": {
			"There is nothing to wait for.", machine("office", reclaimed(java), func(m *v1alpha1.ScheduledMachine) { m.Annotations[clusterv1.PausedAnnotation] = "" }),
			said("office: nothing to give back: it has no machine in the cluster, and its schedule is off.\n"), nil,
		},
		"Unserved": {
			"The output says that no manager serves the request.", machine("office", unserved("")),
			said(takeBack + "But " + noManager + ".\n"),
			[]string{written},
		},
		"UnservedShard": {
			"The label says which manager to look for.", machine("office", unserved("b")),
			said(takeBack + "But " + noShard + ".\n"),
			[]string{written},
		},
		"NeverServed": {
			"A manager adds its finalizer before anything else.",
			machine("office", func(m *v1alpha1.ScheduledMachine) { m.Finalizers, m.CreationTimestamp = nil, *in(-5 * 60e9) }),
			said(takeBack + "But " + noManager + ".\n"),
			[]string{written},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &api{objects: map[string]any{path("office"): tc.object}}
			config := server.serve(t)
			if diff := cmp.Diff(tc.want, run("", "give-back", "office", "--reason", "Ada needs it", config)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.written, server.patches); diff != "" {
				t.Errorf("%s\nwritten: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGiveBackKeepsTheRequestOfAFasterClient(t *testing.T) {
	t.Parallel()
	server := &api{objects: map[string]any{path("office"): machine("office")}}
	server.beforePatch = func(a *api) {
		a.objects[path("office")] = machine("office", withRequest(java))
		a.touch(t, path("office"))
	}
	got := run("", "give-back", "office", server.serve(t))
	if got.Code != 0 || !strings.Contains(got.Out, "already: its owner started a program that matches java") || len(server.patches) != 0 {
		t.Errorf("the request of another must not be written over: %+v, written %q", got, server.patches)
	}
}

func TestGiveBackWaits(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		watchEvents []*v1alpha1.ScheduledMachine
		args        []string
		want        result
	}{
		"ToTheEnd": {
			"Every step once, with its time, until it is over.",
			[]*v1alpha1.ScheduledMachine{
				machine("office", withRequest(ada)), machine("office", withRequest(ada), taking), machine("office", withRequest(ada), taking),
				machine("office", withRequest(ada), taking, func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef = nil }),
				machine("office", reclaimed(ada), func(m *v1alpha1.ScheduledMachine) { m.Status.ObservedGeneration-- }),
				machine("office", reclaimed(ada)),
			},
			nil,
			result{Out: takeBack +
				"17:00:00  the request is recorded\n" +
				"17:00:00  the machine is being removed from the cluster\n" +
				"17:00:00  the machine is out of the cluster\n" +
				"17:00:00  the schedule is off\n" +
				"17:00:00  given back: the schedule is off, and the machine has left the cluster\n"},
		},
		"OfTwoThatShareAHost": {
			"Only what this one had is known to be gone.",
			[]*v1alpha1.ScheduledMachine{machine("office", reclaimed(ada), func(m *v1alpha1.ScheduledMachine) {
				m.Status.Conditions = append(m.Status.Conditions, condition(v1alpha1.HostClaimedCondition, metav1.ConditionTrue, v1alpha1.ClaimedFirstReason, "The host is also named by ScheduledMachine desk"))
			})},
			nil,
			result{Out: takeBack +
				"17:00:00  the request is recorded\n" +
				"17:00:00  given back: the schedule is off, and the machine has left the cluster\n" +
				"But the host may still be in the cluster through another ScheduledMachine, see kubectl 5spot why of that one: The host is also named by ScheduledMachine desk.\n"},
		},
		"Withdrawn": {
			"The command ends when the request is withdrawn.",
			[]*v1alpha1.ScheduledMachine{machine("office")},
			nil,
			result{
				Out: takeBack + "17:00:00  the request is recorded\n",
				Err: "error: office: the request was withdrawn, or the machine was lent again\n", Code: 1,
			},
		},
		"TooLong": {
			"The wait ends, and the error says that the request stands.",
			nil,
			[]string{"--timeout=1s"},
			result{
				Out: takeBack + "17:00:00  the request is recorded\n",
				Err: "error: office: not given back after 1s, but the request stands: the request is recorded; see kubectl 5spot why office\n", Code: 1,
			},
		},
		"NobodyServesIt": {
			"The error names the label that the missing manager filters by.",
			[]*v1alpha1.ScheduledMachine{machine("office", withRequest(ada), unserved("b"))},
			[]string{"--timeout=1s"},
			result{
				Out: takeBack + "17:00:00  the request is recorded\n",
				Err: "error: office: not given back after 1s, but the request stands: the request is recorded; " + noShard + "; see kubectl 5spot why office\n", Code: 1,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &api{objects: map[string]any{path("office"): machine("office")}, watchEvents: tc.watchEvents}
			args := append([]string{"give-back", "office", "--wait", server.serve(t)}, tc.args...)
			if diff := cmp.Diff(tc.want, run("", args...)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGiveBackTimesOutWithoutAResponse(t *testing.T) {
	t.Parallel()
	server := &api{objects: map[string]any{path("office"): machine("office")}, noResponse: true}
	want := result{
		Out: takeBack,
		Err: "error: office: not given back after 1s, but the request stands: there was no progress; see kubectl 5spot why office\n", Code: 1,
	}
	if diff := cmp.Diff(want, run("", "give-back", "office", "--wait", "--timeout=1s", server.serve(t))); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestGiveBackRestartsAWatchThatEnds(t *testing.T) {
	t.Parallel()
	server := &api{objects: map[string]any{path("office"): machine("office", withRequest(ada))}, endWatch: true}
	server.watchEvents = []*v1alpha1.ScheduledMachine{machine("office", withRequest(ada), taking)}
	server.watched = func() {
		server.objects[path("office")] = machine("office", reclaimed(ada))
		server.failReads = 1 // The API server restarts.
	}
	got := run("", "give-back", "office", "--wait", server.serve(t))
	if got.Code != 0 || !strings.HasSuffix(got.Out, "17:00:00  given back: the schedule is off, and the machine has left the cluster\n") {
		t.Errorf("what happens between two watches must not be missed: %+v", got)
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	written := []string{"kubectl-5spot: map[spec:map[schedule:map[enabled:true]]]"}
	cases := map[string]struct {
		reason  string
		object  *v1alpha1.ScheduledMachine
		want    result
		written []string
	}{
		"InTheWindow": {
			"It says what follows at once, and what would undo it.", machine("office", reclaimed(java)),
			result{Out: "office: the schedule is on again. Its window is open: the machine joins now, and leaves Wed 2025-01-15 18:00:00 EST.\n" +
				"If java still runs on the machine, the machine leaves again: quit it first.\n"},
			written,
		},
		"AskedByAPerson": {
			"There is no program to quit.", machine("office", reclaimed(ada)),
			result{Out: "office: the schedule is on again. Its window is open: the machine joins now, and leaves Wed 2025-01-15 18:00:00 EST.\n"},
			written,
		},
		"KeptAway": {
			"With OnResume the record counts, whatever enabled says: it goes in the same write.",
			machine("office", reclaimed(ada), func(m *v1alpha1.ScheduledMachine) {
				m.Spec.ResumeAfterReclaim, m.Spec.Schedule.Enabled = v1alpha1.ResumeOnResume, new(true)
			}),
			result{Out: "office: the schedule is on again. Its window is open: the machine joins now, and leaves Wed 2025-01-15 18:00:00 EST.\n"},
			[]string{"kubectl-5spot: map[metadata:map[annotations:<nil>]]"},
		},
		"OutsideTheWindow": {
			"It says when.", machine("office", disabled, func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = []string{"19-20"} }),
			result{Out: "office: the schedule is on again. The machine joins when its window opens: Wed 2025-01-15 19:00:00 EST.\n"},
			written,
		},
		"Always": {
			"A window without an end has none to tell.", machine("office", disabled, constant),
			result{Out: "office: the schedule is on again. Its window is open and does not close: the machine joins now.\n"},
			written,
		},
		"Never": {
			"Nothing would come of it, and that is said.", machine("office", disabled, func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = nil }),
			result{Out: "office: the schedule is on again. Its window does not open within a year: nothing joins.\n"},
			written,
		},
		"On": {
			"Nothing is written.", machine("office"),
			result{Out: "office: the schedule is on already. Its window is open: the machine is lent, and leaves Wed 2025-01-15 18:00:00 EST.\n"},
			nil,
		},
		"KillSwitch": {
			"Turning the schedule on would do nothing.", machine("office", killed),
			result{Err: "error: office: spec.killSwitch is true, so nothing runs in any window: " +
				"kubectl -n farm patch scheduledmachine/office --type merge -p '{\"spec\":{\"killSwitch\":false}}' first\n", Code: 1},
			nil,
		},
		"UnderWay": {
			"It would be turned off again.", machine("office", withRequest(java), taking),
			result{Err: "error: office: it is still being given back, and at the end its schedule is turned off: try again after that\n", Code: 1},
			nil,
		},
		"Unreadable": {
			"The API would refuse it; this says what to change.", machine("office", disabled, func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = []string{"25"} }),
			result{Err: "error: office: spec.schedule.hoursOfDay[0]: Invalid value: \"25\": Failed to parse hours: Hour must be 0-23, got: 25; hours are 0-23, a range is 9-17\n", Code: 2},
			nil,
		},
		"Paused": {
			"Nothing follows, which is said first.", machine("office", disabled, pausedMachine),
			result{Out: "office: it is paused: the schedule is on, but nothing happens until the pause of it or its Cluster ends.\n"},
			written,
		},
		"Unserved": {
			"A manager may be missing.", machine("office", disabled, unserved("")),
			result{Out: "office: the schedule is on again. Its window is open: the machine joins now, and leaves Wed 2025-01-15 18:00:00 EST.\nBut " + noManager + ".\n"},
			written,
		},
		"Deleted": {
			"There will be nothing to lend.", machine("office", func(m *v1alpha1.ScheduledMachine) { m.DeletionTimestamp = in(0) }),
			result{Err: "error: office: it is being deleted: create a new ScheduledMachine to lend the machine again\n", Code: 1},
			nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &api{objects: map[string]any{path("office"): tc.object}}
			if diff := cmp.Diff(tc.want, run("", "resume", "office", server.serve(t))); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.written, server.patches); diff != "" {
				t.Errorf("%s\nwritten: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A request outlives its object, and resume must remove it.
func TestResumeDeletesTheReclaimedMachine(t *testing.T) {
	t.Parallel()
	left := &v1alpha1.ReclaimedMachine{Spec: v1alpha1.ReclaimedMachineSpec{ClusterName: "prod", Node: "worker-7", NodeUID: "u1", Reason: "process-match: java\x1b"}}
	left.Namespace, left.Name, left.UID = "farm", "office", "r1"
	const where, none = "/apis/5spot.finos.org/v1alpha1/namespaces/farm/reclaimedmachines/office", `error: reading office: scheduledmachines.5spot.finos.org "office" not found in namespace farm: for another, add -n NAMESPACE` + "\n"
	cases := map[string]struct {
		reason  string
		objects map[string]any
		want    result
		written []string
	}{
		"Left": {
			"Nothing is there to lend, and nothing keeps the next one away.",
			map[string]any{where: left},
			said("office: there is no ScheduledMachine of this name, so nothing joins. Its owner had taken the machine back (process-match: java); " +
				"the ReclaimedMachine is deleted now, and a new ScheduledMachine follows its schedule.\n"),
			[]string{"delete r1"},
		},
		"MayNotDelete": {
			"It names what to do, and who can.",
			map[string]any{where: left, "DELETE " + where: refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden")},
			result{Err: "error: office: there is no ScheduledMachine of this name, but its owner took the machine back (process-match: java), and its ReclaimedMachine remains: " +
				"a new ScheduledMachine stays off. To change that, a user with permission runs kubectl -n farm delete reclaimedmachine/office: forbidden\n", Code: 1},
			nil,
		},
		"MayNotSee": {
			"Then the name is wrong, as far as this person can tell.",
			map[string]any{where: refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden")},
			result{Err: none, Code: 1},
			nil,
		},
		"Nothing": {"The name is wrong.", nil, result{Err: none, Code: 1}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &api{objects: tc.objects}
			if diff := cmp.Diff(tc.want, run("", "resume", "office", server.serve(t))); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.written, server.patches); diff != "" {
				t.Errorf("%s\nwritten: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWhy(t *testing.T) {
	t.Parallel()
	broken := func(m *v1alpha1.ScheduledMachine) {
		m.Status.Phase = v1alpha1.PhaseError
		m.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "ReconcileFailed", "creating Machine: forbidden")}
	}
	blocked := func(m *v1alpha1.ScheduledMachine) {
		m.Status.Phase = v1alpha1.PhasePending
		m.Status.Conditions = []metav1.Condition{condition("ReferencesValid", metav1.ConditionFalse, "ReferencesInvalid", "Cluster prod does not exist")}
	}
	unreachable := func(m *v1alpha1.ScheduledMachine) {
		m.Status.Conditions = append(m.Status.Conditions, condition("WorkloadClusterReachable", metav1.ConditionFalse, "NotConnected", "not connected since noon"))
	}
	off := func(m *v1alpha1.ScheduledMachine) {
		disabled(m)
		m.Status.ObservedGeneration = m.Generation
		m.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl-create", Time: in(-48 * 3600e9), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:schedule":{"f:hoursOfDay":{}}}}`)},
			{Manager: "kubectl-patch", Time: in(-2 * 3600e9), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:schedule":{"f:enabled":{}}}}`)},
		}
	}
	onResume := func(m *v1alpha1.ScheduledMachine) {
		m.Spec.ResumeAfterReclaim, m.Spec.Schedule.Enabled = v1alpha1.ResumeOnResume, new(true)
	}
	lentAgain := func(m *v1alpha1.ScheduledMachine) {
		m.Status.Conditions = append(m.Status.Conditions, condition("LentAgain", metav1.ConditionTrue, "EnabledByTool", "argocd-controller turned the schedule on"))
	}
	joining := func(m *v1alpha1.ScheduledMachine) {
		m.Status.NodeRef, m.Status.LastScheduledTime = nil, in(-5*time.Minute)
		m.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "MachineNotReady", "Machine is not ready: Waiting for the host")}
	}
	lost := func(m *v1alpha1.ScheduledMachine) {
		m.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "MachineNotReady", "Machine is not ready: Node condition Ready is Unknown")}
	}
	none := func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef = nil }
	seen := func(m *v1alpha1.ScheduledMachine) { m.Status.ObservedGeneration = m.Generation }
	cases := map[string]struct {
		reason string
		object *v1alpha1.ScheduledMachine
		state  string
		want   []string // in the text
	}{
		"Returned": {
			"Who, when, which program, on which Node, what next.", machine("office", reclaimed(java)), "Returned",
			[]string{
				"Because:   its owner started a program that matches java\n", "Asked:     2025-01-15T14:00:00Z\n", "Node:      worker-7\n", "Next:      nothing: disabled\n",
				"Do:        quit java before you lend it again, or it leaves again\n           to lend it again: kubectl 5spot -n farm resume office\n",
			},
		},
		"ReturnedToAPerson": {
			"Their own words, and no program to quit.", machine("office", reclaimed(ada)), "Returned",
			[]string{"Because:   asked by a person: Ada needs it\n", "Do:        to lend it again: kubectl 5spot -n farm resume office\n"},
		},
		"ReturnedByTheNode": {
			"Every user who may patch the Node can request the machine.", machine("office", reclaimed(v1alpha1.ReclaimRecord{Node: "worker-7", NodeUID: "u1", Reason: "fire"})), "Returned",
			[]string{"Because:   asked on the Node: fire\n", "Asked:     at an unknown time\n"},
		},
		"Kept": {
			"With OnResume the schedule does not count, and may be on.", machine("office", reclaimed(ada), onResume), "Returned",
			[]string{"and it stays out of the cluster until it is resumed, also in its window\n", "Next:      nothing: kept away until it is resumed\n", "Do:        to lend it again: kubectl 5spot -n farm resume office\n"},
		},
		"LentAgain":      {"A tool turned the schedule on while the owner may still use the machine.", machine("office", lentAgain), "Running", []string{"Note:      argocd-controller turned the schedule on\n"}},
		"Returning":      {"Nothing of the schedule counts any more.", machine("office", withRequest(java), taking), "Returning", []string{"Next:      nothing: its schedule is being turned off\n"}},
		"StillThere":     {"Off is not gone.", machine("office", reclaimed(java), func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef = &v1alpha1.ChildReference{} }), "Returning", []string{"the machine is still leaving"}},
		"Paused":         {"A pause comes first: not even the owner's request is served.", machine("office", pausedMachine), "Paused", []string{"not even for its owner", "Next:      nothing: paused\n"}},
		"PausedAndAsked": {"The owner is told that the request is not lost.", machine("office", withRequest(java), func(m *v1alpha1.ScheduledMachine) { m.Annotations[clusterv1.PausedAnnotation] = "" }), "Paused", []string{"Note:      its owner has asked for it, and the request is kept\n"}},
		"PausedGoing":    {"The machine leaves after the pause, and an engineer decides before that.", machine("office", pausedMachine, going), "Paused", []string{"Note:      its ScheduledMachine is being deleted: the machine leaves when the pause ends\n"}},
		"KillSwitch":     {"By whom is not known, how to end it is.", machine("office", killed, none), "KillSwitch", []string{"stays away", `'{"spec":{"killSwitch":false}}'`, "Next:      nothing: the kill switch is on\n"}},
		"Removing":       {"It is not gone yet.", machine("office", killed), "KillSwitch", []string{"is being removed"}},
		"Off":            {"Kubernetes knows with what it was set, and when.", machine("office", off), "Off", []string{"Because:   spec.schedule.enabled was set to false\n", "Set by:    kubectl-patch, which wrote last 120m ago (2025-01-15T15:00:00Z)\n"}},
		"OffButThere":    {"Off leaves the machine where it is.", machine("office", off, func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef = &v1alpha1.ChildReference{} }), "Off", []string{"stays as it is", "to have the machine: kubectl 5spot -n farm give-back office\n"}},
		"Waiting":        {"The next opening.", machine("office", away), "Waiting", []string{"opens in 21h: Thu 2025-01-16 09:00:00 EST"}},
		"Running":        {"How to get it back.", machine("office"), "Running", []string{"closes in 6h", "to have the machine now: kubectl 5spot -n farm give-back office\n"}},
		"Joining":        {"Not there yet.", machine("office", joining), "Joining", []string{"Since:     2025-01-15T16:55:00Z (5m ago)\n"}},
		"NotReady":       {"It has joined long ago, and its Node was lost.", machine("office", lost), "NotReady", []string{"Since:     2025-01-15T14:00:00Z (3h ago)\n", "Because:   Machine is not ready: Node condition"}},
		"Leaving":        {"What blocks it.", machine("office", leaving), "Leaving", []string{"State:     Leaving: its window is closed, and it is leaving the cluster\n", "Because:   Waiting for the drain\n"}},
		"LeavingOpen":    {"The window is not the cause.", machine("office", leaving, func(m *v1alpha1.ScheduledMachine) { m.Status.InSchedule = true }), "Leaving", []string{"State:     Leaving: it is leaving the cluster, although its window is open\n"}},
		"Error":          {"Which step.", machine("office", broken), "Error", []string{"Because:   creating Machine: forbidden\n"}},
		"Blocked":        {"What is missing.", machine("office", blocked), "Blocked", []string{"Since:     2025-01-15T14:00:00Z (3h ago)\n", "Because:   Cluster prod does not exist\n"}},
		"Unreadable":     {"Unknown is not outside.", machine("office", unreadable), "Unreadable", []string{"Because:   Hour must be 0-23, got: 25\n", "Next:      unknown: the schedule is unreadable\n"}},
		"Pending":        {"No controller has reconciled it.", machine("office", fresh), "Pending", []string{"no controller has seen it yet", "Next:      unknown: the controller has not seen"}},
		"Deleting":       {"It goes for good.", machine("office", func(m *v1alpha1.ScheduledMachine) { m.DeletionTimestamp = in(0) }), "Deleting", []string{"it is being deleted", "Since:     2025-01-15T17:00:00Z (0s ago)\n", "Next:      nothing: it is being deleted\n"}},
		"Unserved":       {"What is shown may be old.", machine("office", unserved("b")), "Running", []string{"Note:      the controller has not seen the latest change yet\n           " + noShard + "\n"}},
		"AskedInVain":    {"The request is on the object, and no manager has observed it.", machine("office", unserved(""), withRequest(ada), seen), "Returning", []string{"Note:      " + noManager + "\n"}},
		"Overdue":        {"The window has closed, and no manager has acted.", machine("office", func(m *v1alpha1.ScheduledMachine) { m.Status.NextCleanup = in(-5 * 60e9) }), "Running", []string{"Note:      " + noManager + "\n"}},
		"Unreachable": {"A program is not seen; the command works.", machine("office", unreachable), "Running", []string{
			"its present state is unknown, as the workload cluster does not answer\n",
			"Note:      the machine does not notice when its owner starts a program; this still works: kubectl 5spot -n farm give-back office\n           not connected since noon\n",
		}},
		"UnreachableReturned": {"It is not lent: there is nothing to notice.", machine("office", reclaimed(java), unreachable), "Returned", []string{"Do:        quit java before you lend it again, or it leaves again\n           to lend it again: kubectl 5spot -n farm resume office\n"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := cluster(t, map[string]any{path("office"): tc.object})
			got := run("", "why", "office", config)
			if strings.HasPrefix(tc.state, "Returned") && strings.Contains(got.Out, "notice") {
				t.Errorf("%s\n%s", tc.reason, got.Out)
			}
			for _, want := range append(tc.want, "Machine:   office in farm\n", "State:     "+tc.state+": ") {
				if !strings.Contains(got.Out, want) {
					t.Errorf("%s\n%q is not in:\n%s%s", tc.reason, want, got.Out, got.Err)
				}
			}
			var e map[string]any
			if err := json.Unmarshal([]byte(run("", "why", "office", "-o", "json", config).Out), &e); err != nil || e["state"] != tc.state {
				t.Errorf("%v: as JSON the state is %v, want %s", err, e["state"], tc.state)
			}
		})
	}
}

// Text of other authors must not look like an output line of the plugin.
func TestWhyKeepsForeignTextOnOneLine(t *testing.T) {
	t.Parallel()
	forged := func(m *v1alpha1.ScheduledMachine) {
		m.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "x\nDo:        run it\u2028Note:      \u202egnorw\x1b[2J"}
	}
	got := run("", "why", "office", cluster(t, map[string]any{path("office"): machine("office", forged)}))
	if strings.Contains(got.Out, "\nDo:        run it") || !strings.Contains(got.Out, "Because:   x Do:        run it Note:      gnorw[2J\n") {
		t.Errorf("forged:\n%s", got.Out)
	}
}

// The writer of a field is the manager that owns exactly that field.
func TestWhyNamesTheWriter(t *testing.T) {
	t.Parallel()
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, ago time.Duration, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Time: in(-ago), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	ntp := entry("bob-edits-ntp", "Update", time.Hour, `{"f:spec":{"f:bootstrapSpec":{"f:spec":{"f:ntp":{"f:enabled":{}}}}}}`)
	status := entry("5spot-controller", "Update", time.Minute, `{"f:spec":{"f:schedule":{"f:enabled":{}}}}`)
	status.Subresource = "status"
	cases := map[string]struct {
		reason string
		fields []metav1.ManagedFieldsEntry
		want   string // empty: unknown
	}{
		"Applied":     {"A field of the same name elsewhere is another field.", []metav1.ManagedFieldsEntry{ntp, entry("alice", "Apply", 2*time.Hour, `{"f:spec":{"f:schedule":{".":{},"f:enabled":{}}}}`)}, "alice by server-side apply, which wrote last 120m ago (2025-01-15T15:00:00Z)"},
		"Latest":      {"Of two who agree, the later.", []metav1.ManagedFieldsEntry{entry("a", "Update", 2*time.Hour, `{"f:spec":{"f:schedule":{"f:enabled":{}}}}`), entry("b", "Update", time.Hour, `{"f:spec":{"f:schedule":{"f:enabled":{}}}}`)}, "b, which wrote last 60m ago (2025-01-15T16:00:00Z)"},
		"Elsewhere":   {"Nobody is better than somebody else.", []metav1.ManagedFieldsEntry{ntp}, ""},
		"Status":      {"Whoever writes status has not written the spec.", []metav1.ManagedFieldsEntry{status}, ""},
		"Unreadable":  {"What cannot be read names nobody.", []metav1.ManagedFieldsEntry{entry("x", "Update", 0, `{"enabled":{}}`)}, ""},
		"NoneAtAll":   {"Managed fields may be switched off.", nil, ""},
		"TimeUnknown": {"The writer is known all the same.", []metav1.ManagedFieldsEntry{{Manager: "x", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:schedule":{"f:enabled":{}}}}`)}}, "x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := machine("office", disabled, func(m *v1alpha1.ScheduledMachine) {
				m.Status.ObservedGeneration, m.ManagedFields = m.Generation, tc.fields
			})
			got := run("", "why", "office", cluster(t, map[string]any{path("office"): object})).Out
			if tc.want == "" && strings.Contains(got, "Set by:") || tc.want != "" && !strings.Contains(got, "Set by:    "+tc.want+"\n") {
				t.Errorf("%s\nwant %q in:\n%s", tc.reason, tc.want, got)
			}
		})
	}
}

// TestWhyNamesNobodyForALostRequest explains records that a manager wrote in place of a removed request.
func TestWhyNamesNobodyForALostRequest(t *testing.T) {
	t.Parallel()
	for _, r := range []v1alpha1.ReclaimRecord{v1alpha1.RestoredRequest(), v1alpha1.RecalledRequest("worker-7", now)} {
		server := &api{objects: map[string]any{path("office"): machine("office", reclaimed(r))}}
		var got struct{ Request struct{ By string } }
		if err := json.Unmarshal([]byte(run("", "why", "office", "-o", "json", server.serve(t)).Out), &got); err != nil || got.Request.By != "unknown" {
			t.Errorf("%s: %v: by %q, want unknown", r.Reason, err, got.Request.By)
		}
	}
}

func TestWhyWritesJSON(t *testing.T) {
	t.Parallel()
	object := machine("office", reclaimed(java))
	var got map[string]any
	if err := json.Unmarshal([]byte(run("", "why", "office", "-o", "json", cluster(t, map[string]any{path("office"): object})).Out), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"namespace": "farm", "name": "office", "state": "Returned",
		"summary": "it was given back to its owner, and its schedule is off",
		"cause":   "its owner started a program that matches java",
		"request": map[string]any{
			"by": "program", "program": "java", "reason": "process-match: java", "node": "worker-7", "requestedAt": "2025-01-15T14:00:00Z",
		},
		"actions": []any{"quit java before you lend it again, or it leaves again", "to lend it again: kubectl 5spot -n farm resume office"},
		"notes":   []any{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// With OnResume spec.schedule.enabled may be true, so status does not report that the schedule is off.
func TestStatusOfAMachineThatAwaitsResume(t *testing.T) {
	t.Parallel()
	m := machine("office", reclaimed(ada), func(m *v1alpha1.ScheduledMachine) {
		m.Spec.ResumeAfterReclaim, m.Spec.Schedule.Enabled = v1alpha1.ResumeOnResume, new(true)
	})
	got := run("", "status", "office", cluster(t, map[string]any{path("office"): m})).Out
	if !strings.Contains(got, "Phase:       Disabled, kept away until it is resumed\n") || strings.Contains(got, "its schedule is off") {
		t.Errorf("status says:\n%s", got)
	}
}

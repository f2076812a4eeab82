// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

func TestJoinsAtTheEdgeAndNotBefore(t *testing.T) {
	w := newWorld(t, nil)
	if next := w.settle(); next != time.Second {
		t.Errorf("at 08:59:59 the next look is in %v, want 1s", next)
	}
	w.want(v1alpha1.PhaseInactive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InactiveReason)
	if _, ok := w.machine(); ok {
		t.Fatal("a Machine before nine")
	}
	got := []any{w.sm.Status.InSchedule, w.sm.Status.NextActivation.UTC(), w.sm.Status.NextCleanup.UTC(), w.sm.Status.NextTransition}
	nine, six := monday.Add(time.Second), monday.Add(9*time.Hour+time.Second)
	if diff := cmp.Diff([]any{false, nine, six, "opens 2025-01-20T09:00:00Z"}, got); diff != "" {
		t.Errorf("status before nine: -want, +got:\n%s", diff)
	}

	w.clock.SetTime(nine)
	if next := w.settle(); next != 9*time.Hour {
		t.Errorf("at 09:00:00 the next look is in %v, want 9h", next)
	}
	w.want(v1alpha1.PhaseActive, v1alpha1.ScheduledCondition, metav1.ConditionTrue, v1alpha1.ScheduleActiveReason)
	if got, want := conditions.GetMessage(w.sm, v1alpha1.ScheduledCondition), "Current time is within schedule: mon-fri 9-17"; got != want {
		t.Errorf("Scheduled: %q, want %q", got, want)
	}
	tomorrow := nine.Add(24 * time.Hour)
	got = []any{w.sm.Status.InSchedule, w.sm.Status.NextActivation.UTC(), w.sm.Status.NextCleanup.UTC(), w.sm.Status.NextTransition}
	if diff := cmp.Diff([]any{true, tomorrow, six, "closes 2025-01-20T18:00:00Z"}, got); diff != "" {
		t.Errorf("status at nine: -want, +got:\n%s", diff)
	}
}

// TestFirstStepsComeBeforeSecondSteps covers an edge that many machines share. First writes of all machines must
// precede second writes, by the priority in the queue.
func TestFirstStepsComeBeforeSecondSteps(t *testing.T) {
	w := newWorld(t, nil)
	w.settle()
	waiting := w.reconcile().Priority
	w.clock.SetTime(monday.Add(time.Second))
	begun := w.reconcile().Priority
	if waiting == nil || begun == nil || *waiting <= *begun {
		t.Errorf("while it waits for nine its priority is %v, with one child made %v: want the former higher", waiting, begun)
	}
}

func TestOwnerReferencesOfChildren(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.InfrastructureSpec.Spec.Raw = []byte(`{"address":"192.0.2.1"}`)
		sm.Spec.MachineTemplate.Labels = map[string]string{"team": "lab"}
		sm.Spec.NodeDrainTimeout = "90s"
	})
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	m, ok := w.machine()
	if !ok {
		t.Fatalf("no Machine: %+v", w.sm.Status)
	}
	if !metav1.IsControlledBy(m, w.sm) {
		t.Errorf("Machine is not controlled by its ScheduledMachine: %+v", m.OwnerReferences)
	}
	if got := m.Spec.Deletion.NodeDrainTimeoutSeconds; got == nil || *got != 90 {
		t.Errorf("nodeDrainTimeoutSeconds: %v, want 90", got)
	}
	wantRefs := []clusterv1.ContractVersionedObjectReference{
		{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "GenericBootstrapConfig", Name: "box-bootstrap"},
		{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "GenericInfrastructureMachine", Name: "box-infra"},
	}
	if diff := cmp.Diff(wantRefs, []clusterv1.ContractVersionedObjectReference{m.Spec.Bootstrap.ConfigRef, m.Spec.InfrastructureRef}); diff != "" {
		t.Errorf("references: -want, +got:\n%s", diff)
	}
	i, _ := w.infra()
	if ref := metav1.GetControllerOf(i); ref != nil {
		t.Errorf("infrastructure has a controller, which stops core for ever: %+v", ref)
	}
	if refs := i.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != w.sm.UID {
		t.Errorf("infrastructure is not owned: %+v", refs)
	}
	if got := i.Object["spec"].(map[string]any)["address"]; got != "192.0.2.1" {
		t.Errorf("spec was not copied: %v", i.Object["spec"])
	}
	want := map[string]string{clusterv1.ClusterNameLabel: "lab", v1alpha1.ScheduledMachineLabel: "box"}
	for _, obj := range []client.Object{i, must(w.bootstrap())} {
		if diff := cmp.Diff(want, obj.GetLabels()); diff != "" {
			t.Errorf("labels of %s: -want, +got:\n%s", obj.GetName(), diff)
		}
	}
	want["team"] = "lab"
	if diff := cmp.Diff(want, m.Labels); diff != "" {
		t.Errorf("labels of Machine: -want, +got:\n%s", diff)
	}
	if refs := w.sm.OwnerReferences; len(refs) != 1 || refs[0].UID != w.cluster.UID || refs[0].Controller != nil {
		t.Errorf("ScheduledMachine would not move with its Cluster: %+v", refs)
	}
}

func must[T any](v T, _ bool) T { return v }

// TestAFailedDepartureDoesNotAffectTheNext rejects the deletion until the window opens again. The next departure has
// its own budget.
func TestAFailedDepartureDoesNotAffectTheNext(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "10m" })
	w.running()
	refuse := true
	w.Fail = func(n int) (before, after error) {
		if refuse && w.Writes[n] == "delete Machine" {
			before = apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "box-machine", errors.New("deletions are forbidden"))
		}
		return before, nil
	}
	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.reconcile()
	m, _ := w.machine()
	if !children.CanWithdraw(m) {
		t.Fatalf("on record is %q, deleted %v", m.Annotations[v1alpha1.DepartureAnnotation], m.DeletionTimestamp)
	}
	w.clock.SetTime(monday.Add(24*time.Hour + time.Second))
	w.planned = true // The planner of the test would wait for the end of the window.
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
	if m, _ = w.machine(); m.Annotations[v1alpha1.DepartureAnnotation] != "" {
		t.Errorf("the Machine stays, and on record is %q", m.Annotations[v1alpha1.DepartureAnnotation])
	}
	refuse, w.planned = false, false
	evening := monday.Add(33*time.Hour + time.Second)
	w.clock.SetTime(evening)
	w.settle()
	m, _ = w.machine()
	if d, _ := children.DepartureOf(m, evening); m.DeletionTimestamp.IsZero() || !d.Since.Time.Equal(evening) || d.Reason != v1alpha1.WindowClosed {
		t.Errorf("on record is %q, want a departure since %v", m.Annotations[v1alpha1.DepartureAnnotation], evening)
	}
}

// TestWhatHoldsADepartureIsShown covers Cluster API waiting at our hook, for a load balancer, an operator, an extension
// or pods.
func TestWhatHoldsADepartureIsShown(t *testing.T) {
	for _, reason := range []string{v1alpha1.WaitingForLoadBalancersReason, v1alpha1.WaitingForOperatorsReason, v1alpha1.WaitingForExtensionReason, v1alpha1.StoppingPodsReason} {
		t.Run(reason, func(t *testing.T) { showsWhatHolds(t, reason) })
	}
}

func showsWhatHolds(t *testing.T, reason string) {
	t.Helper()
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "10m" })
	w.running()
	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.settle()
	m, _ := w.machine()
	const busy = "load balancer edge: web/ws-1 has 9 connections"
	w.report(m, v1alpha1.ReadyForDeletionCondition, metav1.ConditionFalse, reason, busy)
	w.settle()
	if got := conditions.Get(w.sm, v1alpha1.MachineReadyCondition); got.Message != busy || got.Reason != reason {
		t.Errorf("before Cluster API has said anything it says %s: %s", got.Reason, got.Message)
	}
	m, _ = w.machine()
	w.report(m, clusterv1.MachineDeletingCondition, metav1.ConditionTrue, clusterv1.MachineDeletingWaitingForPreDrainHookReason, "Waiting for pre-drain hooks to succeed")
	w.settle()
	for _, tc := range []struct {
		status metav1.ConditionStatus
		says   string
		want   string
	}{
		{metav1.ConditionFalse, "load balancer edge: web/ws-1 has 3 connections", "load balancer edge: web/ws-1 has 3 connections"},
		{metav1.ConditionTrue, "load balancer edge missed its deadline", "Waiting for pre-drain hooks to succeed"},
	} {
		m, _ = w.machine()
		w.report(m, v1alpha1.ReadyForDeletionCondition, tc.status, v1alpha1.WaitingForExtensionReason, tc.says)
		w.settle()
		w.clock.SetTime(w.clock.Now().Add(time.Minute)) // Progress is reported after 10 s.
		w.settle()
		for _, c := range []string{v1alpha1.ReadyCondition, v1alpha1.MachineReadyCondition} {
			if got := conditions.GetMessage(w.sm, c); !strings.Contains(got, tc.want) {
				t.Errorf("%s: %q, want %q in it", c, got, tc.want)
			}
		}
	}
}

func TestDepartureIsBounded(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "10m" })
	w.running()
	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.settle()
	w.want(v1alpha1.PhaseShuttingDown, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ShuttingDownReason)
	m, _ := w.machine()
	if m.DeletionTimestamp.IsZero() {
		t.Fatal("Machine is not being deleted")
	}
	if _, ok := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; ok {
		t.Error("a graceful departure skips the drain")
	}
	// A shorter timeout is for later departures.
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "1s" })
	w.report(m, clusterv1.MachineDeletingCondition, metav1.ConditionTrue, "DrainingNode", "Pod default/db-0: cannot evict")
	// The API server's clock is months ahead: the budget does not depend on it.
	deadline := w.clock.Now().Add(10 * time.Minute)
	w.settle()
	w.clock.SetTime(deadline.Add(-3 * time.Second))
	if next := w.settle(); next != 3*time.Second {
		t.Errorf("three seconds before the deadline the next look is in %v", next)
	}
	if got := conditions.GetMessage(w.sm, v1alpha1.ReadyCondition); !strings.Contains(got, "default/db-0") {
		t.Errorf("what blocks the drain is not shown: %q", got)
	}
	w.clock.SetTime(deadline)
	w.settle()
	m, _ = w.machine()
	if _, ok := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !ok {
		t.Error("the drain is not skipped at the deadline")
	}
	if i, _ := w.infra(); i.GetDeletionTimestamp().IsZero() {
		t.Error("core would look at the drain again up to 20 s later")
	}
	w.gone()
	w.settle()
	w.want(v1alpha1.PhaseInactive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InactiveReason)
	if s := w.sm.Status; s.MachineRef != nil || s.BootstrapRef != nil || s.InfrastructureRef != nil || s.NodeRef != nil {
		t.Errorf("references to what is gone: %+v", s)
	}
}

func TestWindowReopensWhileLeaving(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"22"} })
	w.settle()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"9-17"} })
	w.settle()
	w.want(v1alpha1.PhaseShuttingDown, v1alpha1.ScheduledCondition, metav1.ConditionTrue, v1alpha1.ScheduleActiveReason)
	old, _ := w.machine()
	w.gone()
	w.settle()
	m, ok := w.machine()
	if !ok || m.UID == old.UID {
		t.Fatalf("did not join again: %v %+v", ok, w.sm.Status)
	}
	w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.MachineNotReadyReason)
}

func TestKillSwitchSkipsEverything(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.events()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
	w.settle()
	w.want(v1alpha1.PhaseTerminated, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.TerminatingReason)
	if notes := w.events(); len(notes) != 1 || !strings.HasSuffix(notes[0], "Active -> Terminated: Kill switch: Machine is being removed without drain") {
		t.Errorf("the Event must not report on the Machine before its deletion: %q", notes)
	}
	m, _ := w.machine()
	for _, key := range []string{clusterv1.ExcludeNodeDrainingAnnotation, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation} {
		if _, ok := m.Annotations[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
	if i, _ := w.infra(); m.DeletionTimestamp.IsZero() || i.GetDeletionTimestamp().IsZero() {
		t.Error("not everything is being deleted")
	}
	w.gone()
	w.settle()
	w.want(v1alpha1.PhaseTerminated, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.TerminatedReason)
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = false })
	w.reconcile()
	if w.sm.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("after the kill switch: %s, want Pending", w.sm.Status.Phase)
	}
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.MachineNotReadyReason)
}

func TestDeletionReleasesLast(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.Must(w.Client.Delete(t.Context(), w.sm))
	w.settle()
	if !w.Read(w.sm) {
		t.Fatal("the object went before its Machine")
	}
	if m, _ := w.machine(); m.DeletionTimestamp.IsZero() {
		t.Fatal("the Machine stays")
	}
	w.gone()
	_, err := w.r.Reconcile(t.Context(), requestFor(w.sm))
	w.Must(err)
	if w.Read(w.sm) {
		t.Errorf("the object stays: %+v", w.sm.Finalizers)
	}
}

func TestKillSwitchNamesTheHooksItWaitsFor(t *testing.T) {
	const hook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup"
	w := newWorld(t, nil)
	w.r.Hooks = children.HonourHooks
	w.running()
	m, _ := w.machine()
	before := m.DeepCopy()
	m.Annotations[hook] = "backup"
	w.Must(w.Client.Patch(t.Context(), m, client.MergeFrom(before)))
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
	w.settle()
	w.want(v1alpha1.PhaseTerminated, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.TerminatingReason)
	if got := conditions.GetMessage(w.sm, v1alpha1.ReadyCondition); !strings.Contains(got, hook) {
		t.Errorf("what is waited for must be named: %q", got)
	}
	if i, found := w.infra(); !found || !i.GetDeletionTimestamp().IsZero() {
		t.Error("the infrastructure goes before the hook is done")
	}
}

// TestReportsWaitForTheEjection writes a request like package reclaim. Until the Machine is being deleted, or for
// fifteen seconds, this controller writes nothing.
func TestReportsWaitForTheEjection(t *testing.T) {
	for name, eject := range map[string]bool{"ejected": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.running()
			w.edit(func(sm *v1alpha1.ScheduledMachine) {
				sm.SetReclaimTimes([]time.Time{w.clock.Now().Add(-time.Hour), w.clock.Now()})
				sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] = v1alpha1.ReclaimRecord{Node: "box-node", NodeUID: "1"}.String()
			})
			w.Writes = nil
			if next := w.reconcile().RequeueAfter; next != 15*time.Second || len(w.Writes) != 0 {
				t.Fatalf("the owner waits for %v; next look in %v", w.Writes, next)
			}
			if eject {
				m, _ := w.machine()
				w.Must(w.Client.Delete(t.Context(), m))
			} else {
				w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
			}
			w.reconcile()
			w.want(v1alpha1.PhaseEmergencyRemove, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimReason)
		})
	}
}

// TestARefusedEjectionIsShownAtOnce covers a stalled reclaim while other owners wait, too.
func TestARefusedEjectionIsShownAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		sm.SetReclaimTimes([]time.Time{w.clock.Now()})
		sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] = v1alpha1.ReclaimRecord{Node: "box-node", NodeUID: "1"}.String()
	})
	defer w.r.ReclaimTracker.Serve()()
	defer w.r.ReclaimTracker.Serve()()
	w.r.ReclaimTracker.RecordStuck(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}, "Forbidden", "deletions are forbidden")
	w.reconcile()
	w.want(v1alpha1.PhaseEmergencyRemove, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimReason)
	if !strings.Contains(w.sm.Status.Message, "deletions are forbidden") {
		t.Errorf("nothing says why the owner waits: %q", w.sm.Status.Message)
	}
}

// TestReportsWaitForOtherOwners covers one ejected machine while two others still wait.
func TestReportsWaitForOtherOwners(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		sm.SetReclaimTimes([]time.Time{w.clock.Now()})
		sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] = v1alpha1.ReclaimRecord{Node: "box-node", NodeUID: "1"}.String()
	})
	m, _ := w.machine()
	w.Must(w.Client.Delete(t.Context(), m))
	first, second := w.r.ReclaimTracker.Serve(), w.r.ReclaimTracker.Serve()
	w.Writes = nil
	if next := w.reconcile().RequeueAfter; next != time.Second || len(w.Writes) != 0 {
		t.Fatalf("owners wait for %v; next look in %v", w.Writes, next)
	}
	first()
	w.reconcile()
	w.want(v1alpha1.PhaseEmergencyRemove, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimReason)
	second()
}

// TestTheMachineShowsTheSchedule checks the condition that clusterctl describe shows.
func TestTheMachineShowsTheSchedule(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	shown := func() metav1.Condition {
		m, _ := w.machine()
		if c := conditions.Get(m, v1alpha1.MachineScheduledCondition); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	if c := shown(); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ScheduleActiveReason || !strings.Contains(c.Message, "9-17") {
		t.Errorf("in its window: %+v", c)
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) })
	w.settle()
	if c := shown(); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ScheduleDisabledReason {
		t.Errorf("while the schedule is off: %+v", c)
	}
	w.Writes = nil
	if w.settle(); len(w.Writes) != 0 {
		t.Errorf("a settled Machine is written: %v", w.Writes)
	}
}

// TestTheFirstHostCounts changes the host data that Cluster API mirrors from a Node.
func TestTheFirstHostCounts(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	says := func(machineID string) {
		t.Helper()
		m, _ := w.machine()
		before := m.DeepCopy()
		m.Status.NodeInfo = &corev1.NodeSystemInfo{MachineID: machineID}
		w.Must(w.Client.Status().Patch(t.Context(), m, client.MergeFrom(before)))
		w.settle()
	}
	for _, machineID := range []string{"", "ours", "theirs"} {
		says(machineID)
		want := machineID
		if machineID == "theirs" {
			want = "ours"
		}
		if got := w.sm.Status.NodeRef.MachineID; got != want {
			t.Errorf("its Node says %q: machineID is %q, want %q", machineID, got, want)
		}
	}
	before := w.sm.DeepCopy()
	w.sm.Status.MachineRef.UID = "earlier"
	w.Must(w.Client.Status().Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.settle()
	if got := w.sm.Status.NodeRef.MachineID; got != "theirs" {
		t.Errorf("what was known of an earlier machine stays: %q", got)
	}
}

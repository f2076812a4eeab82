// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

func TestOwnerGetsTheBoxBackInOrder(t *testing.T) {
	t.Parallel()
	l := newLab(t, "owner")
	var mark int
	r := specs.OwnerGetsTheMachineBack(l.specs(), func() { mark = l.mark() })
	l.wantNoEviction(r.Pod)
	l.wantEmergencyOrder(l.writes(mark), r.Node)
}

// wantEmergencyOrder checks the order of an emergency's writes in the audit logs.
func (l *lab) wantEmergencyOrder(writes []auditv1.Event, node *corev1.Node) {
	l.t.Helper()
	// Cluster API skips the drain, and may delete the infrastructure first.
	served := func(e auditv1.Event) bool {
		return accepted(e) || e.Verb == "delete" && e.ResponseStatus != nil && e.ResponseStatus.Code == 404
	}
	find := func(what, verb, resource, text string) int {
		l.t.Helper()
		i := slices.IndexFunc(writes, func(e auditv1.Event) bool {
			return served(e) && e.Verb == verb && e.ObjectRef.Resource == resource && e.ObjectRef.Subresource == "" &&
				strings.Contains(body(e), text)
		})
		if i < 0 {
			l.t.Fatalf("there is no write that %s:\n%s", what, describeAll(writes))
		}
		return i
	}
	steps := []int{
		find("remembers the request", "patch", "scheduledmachines", v1alpha1.EmergencyReclaimAnnotation),
		find("tells the Machine to skip its drain", "patch", "machines", "exclude-node-draining"),
		find("deletes the Machine", "delete", "machines", ""),
		find("deletes the infrastructure", "delete", "planemachines", ""),
		find("turns the schedule off", "patch", "scheduledmachines", `"enabled":false`),
	}
	if !slices.IsSorted(steps) {
		l.t.Errorf("remember, skip drain, delete Machine, delete infrastructure, turn off: in this order, got %v:\n%s", steps, describeAll(writes))
	}
	disarm := writes[steps[4]]
	if !strings.Contains(body(disarm), `"`+v1alpha1.EmergencyReclaimAnnotation+`":null`) {
		l.t.Errorf("turning the schedule off and forgetting the request must be one write: %s", body(disarm))
	}
	before := 0
	for _, e := range writes[:steps[2]] {
		if e.ObjectRef.Resource != "events" && e.ObjectRef.Subresource != "status" {
			before++
		}
	}
	if before > 2 {
		l.t.Errorf("at most three writes may come between the request and the Machine's deletion:\n%s", describeAll(writes[:steps[2]+1]))
	}
	l.wantNodeWritten(node, reclaim.NodeTaint, writes[steps[2]], "pods must be started elsewhere after the Machine is on its way")
	l.wantNodeWritten(node, `"`+reclaim.RequestedAnnotation+`":null`, disarm, "the request must be cleared after the schedule is off")
}

// wantNodeWritten checks that a write to the Node that contains text came after another write.
func (l *lab) wantNodeWritten(node *corev1.Node, text string, after auditv1.Event, why string) {
	l.t.Helper()
	for _, e := range l.audit(workload) {
		if !isWrite(e) || e.ObjectRef == nil || e.ObjectRef.Resource != "nodes" || e.ObjectRef.Name != node.Name ||
			!strings.Contains(body(e), text) {
			continue
		}
		if e.RequestReceivedTimestamp.Time.Before(after.StageTimestamp.Time) {
			l.t.Errorf("%s, not before: %v, %v", why, e.RequestReceivedTimestamp, after.StageTimestamp)
		}
		return
	}
	l.t.Errorf("%s: no write to Node %s contains %s", why, node.Name, text)
}

func body(e auditv1.Event) string {
	if e.RequestObject == nil {
		return ""
	}
	return string(e.RequestObject.Raw)
}

// wantEvents waits until the events of sm contain all texts, each in the form
// "type reason note".
func (l *lab) wantEvents(sm *v1alpha1.ScheduledMachine, texts ...string) {
	l.t.Helper()
	l.specs().WaitEvents(sm, texts...)
}

func TestEmergencyInTheMiddleOfADrain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "emergdrain")
	sm := l.running("box", nil)
	h := l.follow(sm)
	pod, _ := l.runPinned(sm, "emergdrain-work")
	node, infra := l.node(sm), l.family(sm).infra
	l.closeWindow(sm)
	l.waitCondition(sm, v1alpha1.MachineReadyCondition, metav1.ConditionFalse, "DrainingNode", pod.Name)
	begin := time.Now()
	l.askBack(node, "blender")
	l.waitGone(infra)
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("an owner must not wait for Cluster API's next look at a drain; the infrastructure took %v", took)
	}
	l.wantReclaimed(sm, "blender")
	h.want(l, active, leaving, emergency, disabled)
}

func TestRequestOlderThanTheMachineIsClearedAndDoesNotEject(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "stale")
	node := l.ownNode("box")
	l.annotate(node, map[string]string{
		reclaim.RequestedAnnotation: "true", reclaim.ReasonAnnotation: "process-match: old",
		reclaim.RequestedAtAnnotation: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
	})
	waitNextSecond(t) // creation timestamps have whole seconds
	sm := l.running("box", nil)
	l.waitCleared(node)
	before := l.family(sm)
	holds(t, 2*time.Second, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	// The clock of the machine is behind; the time of the API server decides.
	l.annotate(node, map[string]string{
		reclaim.RequestedAnnotation: "true", reclaim.ReasonAnnotation: "process-match: new",
		reclaim.RequestedAtAnnotation: time.Now().Add(-time.Minute * 30).UTC().Format(time.RFC3339),
	})
	l.wantReclaimed(sm, "new")
}

func TestRequestWithoutAReasonCounts(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "noreason")
	sm := l.running("box", nil)
	l.annotate(l.node(sm), map[string]string{reclaim.RequestedAnnotation: "true"})
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	l.waitCondition(sm, v1alpha1.ScheduledCondition, metav1.ConditionFalse, "EmergencyReclaimDisabledSchedule",
		"Schedule auto-disabled by emergency reclaim (reclaim trigger on Node)")
}

func TestSlowInfrastructureKeepsTheScheduleOn(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "slow")
	sm := l.running("box", nil, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{Deletion: infrav1.Hang}})
	node, f := l.node(sm), l.family(sm)
	l.askBack(node, "java")
	l.waitPhase(sm, emergency, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionFalse, "EmergencyReclaim", "Emergency reclaim on node "+node.Name, "process-match: java")
	holds(t, 2*time.Second, func(ctx context.Context) error {
		if err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(sm), sm); err != nil {
			return err
		}
		if !sm.ScheduleEnabled() {
			return fmt.Errorf("the schedule is off before the Machine is gone")
		}
		return nil
	})
	// A person's "off" in the middle must not end the emergency.
	l.disable(sm)
	l.edit(f.infra, func() { f.infra.Spec.Faults.Deletion = "" })
	l.wantReclaimed(sm, "java")
}

// waitNextSecond returns in a later second of the clock.
func waitNextSecond(t *testing.T) {
	t.Helper()
	now := time.Now().Unix()
	holds(t, 1100*time.Millisecond, func(context.Context) error { return nil })
	if time.Now().Unix() == now {
		t.Fatal("the clock stands still")
	}
}

func TestOwnerOfADisabledMachineGetsTheBoxBack(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "disowner")
	sm := l.running("box", nil)
	h := l.follow(sm)
	node := l.node(sm)
	l.disable(sm)
	l.waitPhase(sm, disabled, "")
	l.askBack(node, "java")
	l.waitFor(sm, func() error {
		if sm.Status.MachineRef != nil {
			return fmt.Errorf("its Machine is still there")
		}
		return nil
	})
	l.wantReclaimed(sm, "java")
	h.want(l, active, disabled, emergency, disabled)
}

func TestKillSwitchBeatsAnEmergencyAndBothEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t, "both")
	sm := l.running("box", nil, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{DeletionSeconds: 4}})
	h := l.follow(sm)
	l.askBack(l.node(sm), "java")
	l.waitPhase(sm, emergency, "")
	l.killSwitch(sm, true)
	l.waitPhase(sm, terminated, metav1.ConditionTrue)
	l.waitFor(sm, func() error {
		if sm.ScheduleEnabled() {
			return fmt.Errorf("its schedule is still on")
		}
		return nil
	})
	l.killSwitch(sm, false)
	l.wantReclaimed(sm, "java")
	h.want(l, active, emergency, terminated, disabled)
}

func TestRequestBeforeTheMachineHasItsNodeCounts(t *testing.T) {
	t.Parallel()
	l := newLab(t, "early")
	node := l.ownNode("box")
	sm := l.started("box", nil, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{ProvisionSeconds: 6}})
	l.waitPhase(sm, active, metav1.ConditionFalse)
	waitNextSecond(t)
	l.askBack(node, "java")
	l.wantReclaimed(sm, "java")
}

func TestNodeCannotSmuggleTextIntoTheManagementCluster(t *testing.T) {
	t.Parallel()
	l := newLab(t, "smuggle")
	sm := l.running("box", nil)
	l.annotate(l.node(sm), map[string]string{
		reclaim.RequestedAnnotation: "true",
		reclaim.ReasonAnnotation:    "process-match: a\x1b[31mb\n" + strings.Repeat("x", 5000),
	})
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	c := condition(sm, v1alpha1.ScheduledCondition)
	if strings.ContainsAny(c.Message, "\x1b\n") || len(c.Message) > 400 {
		t.Errorf("control characters and excess must be taken out of what a Node says: %d bytes, %q", len(c.Message), c.Message)
	}
}

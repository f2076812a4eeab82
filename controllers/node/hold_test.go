// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// holding returns a protected machine with a reclaimHold.
func holding(t *testing.T) *world {
	t.Helper()
	w := protected(t)
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaim.HoldKill })
	w.Must(w.reconcile()) // The agent gets its configuration.
	w.annotate(map[string]string{reclaim.StateAnnotation: said("netlink", w.sm.Spec.AgentConfig())})
	w.want(metav1.ConditionTrue, "Watching", "")
	return w
}

// annotate sets annotations of the Node, and removes those with an empty value.
func (w *world) annotate(values map[string]string) {
	w.Helper()
	w.Edit(w.node, func() {
		for key, value := range values {
			if w.node.Annotations[key] = value; value == "" {
				delete(w.node.Annotations, key)
			}
		}
	})
}

// request writes the owner's request on the Node, with a report of the hold.
func (w *world) request(hold string) {
	w.Helper()
	w.annotate(map[string]string{reclaim.RequestedAnnotation: "true", reclaim.HoldAnnotation: hold})
}

func (w *world) wantHold(reason string, want *v1alpha1.HoldReport, writes ...string) {
	w.Helper()
	w.Writes = nil
	w.Must(w.reconcile())
	w.Must(w.reconcile())
	if diff := cmp.Diff(want, w.sm.Status.ReclaimHold); diff != "" {
		w.Errorf("%s: -want, +got:\n%s", reason, diff)
	}
	if diff := cmp.Diff(writes, w.Writes); diff != "" && len(writes)+len(w.Writes) > 0 {
		w.Errorf("%s: writes: -want, +got:\n%s", reason, diff)
	}
}

// TestTheHoldIsReported follows a reclaim until the next machine joins.
func TestTheHoldIsReported(t *testing.T) {
	w := holding(t)
	frozen := reclaim.HoldState{Pods: 8, CPU: 9 * time.Millisecond}
	w.request(frozen.Text())
	w.wantHold("before the request is recorded, a write could conflict with the record", nil)
	w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
	first := &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9}
	w.wantHold("the CPU is back", first, written...)
	w.annotate(map[string]string{reclaim.HoldAnnotation: "pods=8 running=0 cpu_ms=soon"})
	w.wantHold("no agent writes this", first)
	frozen.Running, frozen.Killed, frozen.Memory = 1, 8, 180*time.Millisecond
	w.annotate(map[string]string{reclaim.HoldAnnotation: frozen.Text()})
	last := &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9, RunningPods: 1, KilledPods: 8, KilledAfterMilliseconds: 180}
	w.wantHold("the memory is back", last, written...)
	w.annotate(map[string]string{reclaim.HoldAnnotation: ""})
	w.wantHold("the report is lost", last)

	m := w.machine()
	m.SetFinalizers(nil)
	w.Must(w.Client.Update(t.Context(), m))
	w.Must(w.Client.Delete(t.Context(), m))
	w.Edit(w.sm, func() { w.sm.Annotations = nil })
	w.wantHold("the reclaim has ended", last)
}

func TestAHoldThatIsTurnedOffIsNotReported(t *testing.T) {
	w := holding(t)
	w.Edit(w.sm, func() {
		w.sm.Spec.ReclaimHold = reclaim.HoldNone
		w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"}
	})
	w.request(reclaim.HoldState{Pods: 1}.Text())
	w.wantHold("the report is of an earlier hold", nil)
}

func TestTheHoldOfARefusedRequestIsRemoved(t *testing.T) {
	w := holding(t)
	w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
	w.request(reclaim.HoldState{Pods: 1}.Text())
	w.wantHold("the pods are held", &v1alpha1.HoldReport{FrozenPods: 1}, written...)
	w.Edit(w.sm, func() { w.sm.Annotations = nil })
	w.wantHold("the machine stays", nil, written...)
}

func TestAHoldThatIsUnavailable(t *testing.T) {
	w := holding(t)
	w.annotate(map[string]string{reclaim.HoldAnnotation: reclaim.HoldState{Unavailable: "the host has\ncgroup v1"}.Text()})
	w.want(metav1.ConditionTrue, "HoldUnavailable", "by detector netlink. reclaimHold Kill has no effect: the host has", written...)
	w.wantHold("nothing is held", nil)
	w.annotate(map[string]string{reclaim.HoldAnnotation: "unavailable=soon"})
	w.want(metav1.ConditionTrue, "Watching", "", written...)
	w.annotate(map[string]string{reclaim.HoldAnnotation: ""})
	w.want(metav1.ConditionTrue, "Watching", "")
}

// TestTheHoldReachesTheAgent checks the configuration, and that an agent with another hold is not reported as watching.
func TestTheHoldReachesTheAgent(t *testing.T) {
	w := holding(t)
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaim.HoldFreeze })
	w.Must(w.reconcile())
	w.pass(15 * time.Second)
	w.want(metav1.ConditionFalse, "ConfigurationPending", "")
	w.annotate(map[string]string{reclaim.StateAnnotation: said("poll", w.sm.Spec.AgentConfig())})
	w.want(metav1.ConditionTrue, "Watching", "detector poll", written...)
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaim.HoldNone })
	w.Must(w.reconcile())
	w.annotate(map[string]string{reclaim.StateAnnotation: said("poll", reclaim.ConfigFor(w.sm.Spec.KillIfCommands))})
	w.want(metav1.ConditionTrue, "Watching", "detector poll")
}

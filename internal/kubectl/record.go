// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// record is a request of an owner, as it was written down.
type record struct{ v1alpha1.ReclaimRecord }

// requestOf returns what is asked of m and not done yet, and false if nothing is.
func requestOf(m *v1alpha1.ScheduledMachine) (record, bool) {
	r, ok := m.ReclaimRequest()
	return record{r}, ok
}

// servedOf returns the request that turned the schedule of m off, and false if none did.
func servedOf(m *v1alpha1.ScheduledMachine) (record, bool) {
	r, ok := m.ServedReclaim()
	return record{r}, ok
}

// program is the pattern of the program that asked; empty if none did.
func (r record) program() string {
	pattern, ok := strings.CutPrefix(r.Reason, reclaim.Reason(""))
	if !ok || r.ByPerson() {
		return ""
	}
	return pattern
}

// Who asked.
const (
	byProgram = "program"
	byPerson  = "person"
	byNode    = "node"
	byUnknown = "unknown"
)

func (r record) by() string {
	switch {
	case r.Lost():
		return byUnknown
	case r.ByPerson():
		return byPerson
	case r.program() != "":
		return byProgram
	default:
		return byNode
	}
}

// sentence says who asked and why.
func (r record) sentence() string {
	if r.Of != "" {
		return "its owner asked for the same host through " + r.Of + ": " + r.Why()
	}
	switch r.by() {
	case byPerson, byUnknown:
		return r.Why()
	case byProgram:
		return "its owner started a program that matches " + r.program()
	default:
		return "asked on the Node: " + r.Why()
	}
}

// paused reports whether nothing is done: the object is, or its Cluster as the
// controller has seen it.
func paused(m *v1alpha1.ScheduledMachine) bool {
	_, annotated := m.Annotations[clusterv1.PausedAnnotation]
	return annotated || meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.PausedCondition)
}

// gateOf returns the condition that says what keeps a machine that is to leave, nil if nothing
// does.
func gateOf(m *v1alpha1.ScheduledMachine) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.DepartureGatedCondition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return c
}

// suppressed returns the condition that says that something was to be done and the manager's
// pause kept it from that, nil if nothing was. It is no pause of the object.
func suppressed(m *v1alpha1.ScheduledMachine) *metav1.Condition {
	if c := gateOf(m); c != nil && c.Reason == v1alpha1.ActuationPausedReason {
		return c
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ReadyCondition)
	if c == nil || c.Reason != v1alpha1.ActuationPausedReason {
		return nil
	}
	return c
}

// gone reports whether the controller has seen that nothing of the machine is in
// the cluster.
func gone(m *v1alpha1.ScheduledMachine) bool {
	return m.Status.ObservedGeneration >= m.Generation && m.Status.MachineRef == nil && m.Status.InfrastructureRef == nil
}

// offNow says what keeps a machine away: with resumeAfterReclaim: OnResume the schedule may
// be on.
func offNow(m *v1alpha1.ScheduledMachine) string {
	if m.AwaitsResume() {
		return "it stays away until it is resumed, whatever its schedule says"
	}
	return "its schedule is off"
}

// hindrances say what a machine waits for that is being removed, in the controllers' own
// words, unless told says it already.
func hindrances(m *v1alpha1.ScheduledMachine, told string) []string {
	r, asked := requestOf(m)
	removed := asked && !paused(m) || m.Spec.KillSwitch || !m.DeletionTimestamp.IsZero() || m.Status.Phase == v1alpha1.PhaseShuttingDown
	if !removed || gone(m) {
		return nil
	}
	var notes []string
	for _, condition := range []string{v1alpha1.ReadyCondition, v1alpha1.MachineReadyCondition} {
		c := meta.FindStatusCondition(m.Status.Conditions, condition)
		if c == nil || c.Status != metav1.ConditionFalse || c.Message == "" || asked && c.Message == r.Where() || strings.Contains(told, c.Message) {
			continue
		}
		told += c.Message
		notes = append(notes, c.Message)
	}
	return notes
}

// reachable is false only if the controller says so.
func reachable(m *v1alpha1.ScheduledMachine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.WorkloadClusterReachableCondition)
	return c == nil || c.Status != metav1.ConditionFalse
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// nodeTimeout bounds one live read of a Node and the following write.
const nodeTimeout = 5 * time.Second

// departure reports the departure of the machine on its Node, with the conditions MaintenancePlanned, DrainInProgress
// and Drained of KEP-5683. It works on all versions of Kubernetes. No decision of 5-Spot depends on these conditions.
//
// It removes only conditions that have its own reasons. It replaces a condition of another writer only if the status
// differs. A departure costs at most three writes to the Node, and an urgent one none.
func (r *Reconciler) departure(ctx context.Context, s *scope) error {
	if s.node == nil {
		return nil
	}
	d := decideDeparture(s.departureFacts(s.now, r.Lead))
	err := r.writeConditions(ctx, s, d)
	if actuate.Gone(err) || workload.NotConnected(err) {
		return nil // An event of the Node or of the connection triggers a reconcile.
	}
	s.recheckAt(d.Again)
	return err
}

// departureFacts converts the observed objects to the facts of the decision.
func (s *scope) departureFacts(now time.Time, lead time.Duration) departureFacts {
	sm := s.scheduled
	f := departureFacts{Now: now, Name: s.request.String(), Lead: lead, Has: conditionsOf(s.node)}
	f.WindowChanges, f.Due = windowEnd(sm, now)
	departure, leaves := children.DepartureOf(s.machine, now)
	if leaves {
		f.Why, f.Drained = string(departure.Reason), drained(s.machine)
	}
	f.Urgent = sm.BeingReclaimed() || sm.Spec.KillSwitch || departure.Lane == v1alpha1.ExemptLane ||
		s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero()
	return f
}

// windowEnd returns when the window of a ScheduledMachine closes, zero if it never does: with a disabled schedule the
// machine stays. due reports that the window is closed; ends is then when the next one opens, zero if that is unknown.
func windowEnd(sm *v1alpha1.ScheduledMachine, now time.Time) (ends time.Time, due bool) {
	if !sm.DeletionTimestamp.IsZero() {
		return time.Time{}, true
	}
	s := machineschedule.Resolve(sm, now)
	return s.Change, s.Enabled && !s.Active
}

// drained reports whether Cluster API reports a successful drain. A deletion that proceeds is no proof: Cluster API
// also proceeds after a skipped drain, or when nodeDrainTimeout expires. The v1beta2 conditions have no equivalent.
func drained(m *clusterv1.Machine) bool {
	return v1beta1conditions.IsTrue(m, clusterv1.DrainingSucceededV1Beta1Condition)
}

// conditionsOf returns the departure conditions of a Node.
func conditionsOf(node *corev1.Node) map[string]condition {
	has := map[string]condition{}
	for _, c := range node.Status.Conditions {
		switch string(c.Type) {
		case v1alpha1.MaintenancePlannedCondition, v1alpha1.DrainInProgressCondition, v1alpha1.DrainedCondition:
			has[string(c.Type)] = condition{string(c.Status), c.Reason, c.Message}
		}
	}
	return has
}

// writeConditions writes the conditions in one patch. It reads the Node live and decides again, because the cache may
// not show the latest write yet.
func (r *Reconciler) writeConditions(ctx context.Context, s *scope, d departureDecision) error {
	if len(d.Set) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	live, err := workload.Live(ctx, r.ClusterCache, s.key)
	if err != nil {
		return err
	}
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, s.key)
	if err != nil {
		return err
	}
	uid := s.node.UID
	if s.node, err = workload.Node(ctx, live, s.node.Name); err != nil || s.node == nil || s.node.UID != uid {
		return err // An event of another Node triggers a reconcile.
	}
	now := r.Clock.Now()
	if d = decideDeparture(s.departureFacts(now, r.Lead)); len(d.Set) == 0 {
		return nil
	}
	before := s.node.DeepCopy()
	for _, kind := range slices.Sorted(maps.Keys(d.Set)) {
		setCondition(s.node, kind, d.Set[kind], now)
	}
	if err := remote.PatchNodeConditions(ctx, s.node, before); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Changed conditions", "Node", s.node.Name, "conditions", d.Set)
	return nil
}

// setCondition sets a condition of a Node, or removes it if c is the zero value.
func setCondition(node *corev1.Node, kind string, c condition, now time.Time) {
	at := slices.IndexFunc(node.Status.Conditions, func(has corev1.NodeCondition) bool { return string(has.Type) == kind })
	want := corev1.NodeCondition{
		Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	switch {
	case c == condition{}:
		node.Status.Conditions = slices.Delete(node.Status.Conditions, at, at+1)
	case at < 0:
		node.Status.Conditions = append(node.Status.Conditions, want)
	default:
		if has := node.Status.Conditions[at]; has.Status == want.Status {
			want.LastTransitionTime = has.LastTransitionTime
		}
		node.Status.Conditions[at] = want
	}
}

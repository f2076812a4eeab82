// SPDX-License-Identifier: Apache-2.0

// Package nodeconditions reports the departure of a machine on its Node, with the conditions MaintenancePlanned,
// DrainInProgress and Drained of KEP-5683. It reads ScheduledMachine, Cluster and Machine, and writes only these
// conditions. It works on all versions of Kubernetes. No decision of 5-Spot depends on these conditions.
//
// It removes only conditions that have its own reasons. It replaces a condition of another writer only if the status
// differs. A departure costs at most three writes to the Node, and an urgent one none.
package nodeconditions

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// nodesWatch is the name of this controller's watch on Nodes.
const nodesWatch = "nodeconditions-nodes"

// nodeTimeout bounds one live read of a Node and the following write.
const nodeTimeout = 5 * time.Second

// Reconciler reconciles the departure conditions of Nodes.
type Reconciler struct {
	// Clock is the time source.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads Machines.
	Children children.Reader
	// Actuate writes Nodes.
	Actuate *actuate.Actuator
	// ClusterCache provides the connections to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Lead is how long before its end a window is announced; zero disables the announcement.
	Lead time.Duration

	nodes       workload.Watch
	watchFilter string
	fresh       wake.Freshness
}

// scope holds what one reconcile reads.
type scope struct {
	scheduled *v1alpha1.ScheduledMachine
	// cluster is nil if there is none.
	cluster *clusterv1.Cluster
	machine *clusterv1.Machine
	node    *corev1.Node
}

// Reconcile reconciles the conditions of one Node.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.fresh.Forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.watchFilter != "" && !labels.HasWatchLabel(sm, r.watchFilter) {
		return ctrl.Result{}, nil // An event of its Cluster, Machine or Node enqueued it; another manager serves it.
	}
	if wait := r.fresh.Hold(req, sm.ResourceVersion, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	again, err := r.reconcile(ctx, sm)
	now := r.Clock.Now()
	result, err := r.fresh.Meet(req, now, err)
	if err == nil && result.RequeueAfter == 0 && !again.IsZero() {
		result.RequeueAfter = max(again.Sub(now), time.Millisecond)
	}
	return result, err
}

// reconcile observes, decides and acts. It returns when to reconcile again, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, sm *v1alpha1.ScheduledMachine) (again time.Time, err error) {
	s, err := r.observe(ctx, sm)
	if err != nil || s == nil {
		return time.Time{}, workload.IgnoreNotConnected(err) // A new connection triggers a reconcile.
	}
	d := decide(s.facts(r.Clock.Now(), r.Lead))
	err = r.act(ctx, s, d)
	if actuate.Gone(err) || workload.NotConnected(err) {
		return time.Time{}, nil // An event of the Node or of the connection triggers a reconcile.
	}
	return d.Again, err
}

// observe returns nil if the object is paused, or if there is no accepted Node.
func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	s := &scope{scheduled: sm}
	var paused bool
	var err error
	if s.cluster, paused, err = workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName); err != nil || paused {
		return nil, err
	}
	if s.machine, err = r.Children.Machine(ctx, sm); err != nil {
		return nil, err
	}
	host, err := r.Children.Host(ctx, sm, s.machine)
	if err != nil || host.NodeRejected() || host.Node == "" {
		return nil, err
	}
	if err := r.nodes.Start(ctx, workload.ClusterKey(sm)); err != nil {
		return nil, err
	}
	reader, err := r.ClusterCache.GetReader(ctx, workload.ClusterKey(sm))
	if err != nil {
		return nil, err
	}
	if s.node, err = workload.Node(ctx, reader, host.Node); err != nil || s.node == nil {
		return nil, err
	}
	return s, nil
}

// facts converts the observed objects to the facts of the decision.
func (s *scope) facts(now time.Time, lead time.Duration) facts {
	sm := s.scheduled
	f := facts{Now: now, Name: client.ObjectKeyFromObject(sm).String(), Lead: lead, Has: conditionsOf(s.node)}
	f.Ends, f.Due = endOf(sm, now)
	departure, leaves := children.DepartureOf(s.machine, now)
	if leaves {
		f.Why, f.Drained = string(departure.Reason), drained(s.machine)
	}
	f.Urgent = sm.BeingReclaimed() || sm.Spec.KillSwitch || departure.Lane == v1alpha1.ExemptLane ||
		s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero()
	return f
}

// endOf returns when the window of a ScheduledMachine closes, zero if it never does: with a disabled schedule the
// machine stays. due reports that the window is closed; ends is then when the next one opens, zero if that is unknown.
func endOf(sm *v1alpha1.ScheduledMachine, now time.Time) (ends time.Time, due bool) {
	switch plan, err := schedule.Parse(validation.ScheduleSpec(&sm.Spec.Schedule)); {
	case !sm.DeletionTimestamp.IsZero():
		return time.Time{}, true
	case !sm.ScheduleEnabled():
		return time.Time{}, false
	case err != nil:
		return time.Time{}, true
	default:
		active, change := plan.At(now)
		return change, !active
	}
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

// act writes the conditions in one patch. It reads the Node live and decides again, because the cache may not show the
// latest write yet.
func (r *Reconciler) act(ctx context.Context, s *scope, d decision) error {
	if len(d.Set) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	cluster := workload.ClusterKey(s.scheduled)
	live, err := workload.Live(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	uid := s.node.UID
	if s.node, err = workload.Node(ctx, live, s.node.Name); err != nil || s.node == nil || s.node.UID != uid {
		return err // An event of another Node triggers a reconcile.
	}
	now := r.Clock.Now()
	if d = decide(s.facts(now, r.Lead)); len(d.Set) == 0 {
		return nil
	}
	before := s.node.DeepCopy()
	for _, kind := range slices.Sorted(maps.Keys(d.Set)) {
		set(s.node, kind, d.Set[kind], now)
	}
	if err := remote.PatchNodeConditions(ctx, s.node, before); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Changed conditions", "Node", s.node.Name, "conditions", d.Set)
	return nil
}

// set sets a condition of a Node, or removes it if c is the zero value.
func set(node *corev1.Node, kind string, c condition, now time.Time) {
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

// SPDX-License-Identifier: Apache-2.0

// Package nodeconditions answers one question: does the Node of a machine say, in the words of
// Kubernetes, that the machine is about to leave, leaves, or is drained? The conditions are those
// of KEP-5683, on every version of Kubernetes. Nothing here reads them: what happens to a
// machine does not depend on them.
//
// It writes conditions that have its own reasons, and no other. A departure costs the Node
// three writes at most, and one that nobody waits for costs none.
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

// nodeTimeout bounds one look at a Node and the write that follows.
const nodeTimeout = 5 * time.Second

// Reconciler keeps the conditions of Nodes.
type Reconciler struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads Machines.
	Children children.Reader
	// Actuate writes Nodes.
	Actuate *actuate.Actuator
	// ClusterCache reaches them.
	ClusterCache clustercache.ClusterCache
	// Lead is how long before its end a window is said to close; zero is not at all.
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

// Reconcile brings the conditions of one Node to what is the case.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.fresh.Forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.watchFilter != "" && !labels.HasWatchLabel(sm, r.watchFilter) {
		return ctrl.Result{}, nil // Its Cluster, Machine or Node woke us; it is another manager's.
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

// reconcile observes, decides and acts, and says when to look again.
func (r *Reconciler) reconcile(ctx context.Context, sm *v1alpha1.ScheduledMachine) (again time.Time, err error) {
	s, err := r.observe(ctx, sm)
	if err != nil || s == nil {
		return time.Time{}, workload.IgnoreNotConnected(err) // The connection wakes us.
	}
	d := decide(s.facts(r.Clock.Now(), r.Lead))
	err = r.act(ctx, s, d)
	if actuate.Gone(err) || workload.NotConnected(err) {
		return time.Time{}, nil // The end of the Node wakes us, or the connection.
	}
	return d.Again, err
}

// observe returns nil for an object that is paused, and where there is no Node, or none that is
// believed.
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
	if err != nil || host.Doubtful() || host.Node == "" {
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

// facts is the border between Kubernetes and the decision.
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

// endOf is when the window of a ScheduledMachine closes, zero if it never does: a machine whose
// schedule is off stays. due says that it is closed, and ends is when it opens, or that nobody knows.
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

// drained reports whether Cluster API says that its drain has ended. That it goes on says nothing:
// it does so, too, when it skips a drain, or gives it up after nodeDrainTimeout. It has no newer word
// for it.
func drained(m *clusterv1.Machine) bool {
	return v1beta1conditions.IsTrue(m, clusterv1.DrainingSucceededV1Beta1Condition)
}

// conditionsOf are those of a Node that matter here.
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

// act writes what is decided, in one patch, for the Node as it is now: the cache may not show yet
// what was written a moment ago.
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
		return err // Another Node wakes us.
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

// set changes a condition of a Node, or takes it off.
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

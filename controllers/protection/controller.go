// SPDX-License-Identifier: Apache-2.0

// Package protection checks that the reclaim agent watches for the owner's programs on each Node. It reads the agent's
// pod, the state that the agent reports on its Node, and the result of the installation by package nodesync. It reports
// the condition OwnerProtected and takes no other action. It uses the Node's report for this condition only. See ADR
// 0021.
//
// Its status patch has one condition and a lock. Status changes do not trigger it.
package protection

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// readsFor bounds reads of a workload cluster. Its cache blocks until its first list, and an unresponsive cluster must
// not block a worker.
const readsFor = 10 * time.Second

// maxID bounds the length of a shown machine ID.
const maxID = 64

// Reconciler reports the condition OwnerProtected.
type Reconciler struct {
	// Clock is the time source.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads Machines.
	Children children.Reader
	// Actuate writes status to the management cluster.
	Actuate *actuate.Actuator
	// ClusterCache provides the connections to workload clusters, for Nodes and the agent's pods.
	ClusterCache clustercache.ClusterCache
	// Results has the latest result of the installation per Cluster.
	Results *installation.Results
	// Recorder records events.
	Recorder events.EventRecorder

	nodes, pods workload.Watch
	watchFilter string
	fresh       wake.Freshness
	differing   wake.ReportDelay
}

// scope holds what one reconcile reads.
type scope struct {
	scheduled *v1alpha1.ScheduledMachine
	cluster   client.ObjectKey
	// machine is nil if there is none.
	machine *clusterv1.Machine
	// host is the accepted host data of the machine.
	host children.Host
	// node is nil if there is none, or if it was not read.
	node *corev1.Node
	// pod is the agent's pod, nil if there is none, or if it was not read.
	pod *corev1.Pod
	// disconnected reports that there is no connection. unreadable is why a read failed.
	disconnected bool
	unreadable   error
	// outcome is the result of the installation. tried reports that there is one.
	outcome installation.Outcome
	tried   bool
}

// Reconcile reports whether the agent protects the owner of one machine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.fresh.Forget(req)
		r.differing.Over(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.watchFilter != "" && !labels.HasWatchLabel(sm, r.watchFilter) {
		return ctrl.Result{}, nil // An event of its Cluster, Machine or Node enqueued it; another manager serves it.
	}
	read := sm.ResourceVersion
	if wait := r.fresh.Hold(req, read, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	again, err := r.reconcile(ctx, req, sm)
	r.fresh.Wrote(req, read, sm.ResourceVersion)
	result, err := r.fresh.Meet(req, r.Clock.Now(), err)
	if err == nil && result.IsZero() {
		result.RequeueAfter = again
	}
	return result, err
}

// reconcile observes, decides and reports. It returns when to reconcile again, zero if only an event triggers the next
// reconcile.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request, sm *v1alpha1.ScheduledMachine) (time.Duration, error) {
	s, err := r.observe(ctx, sm)
	if err != nil || s == nil {
		return 0, err
	}
	v := Decide(s.facts())
	last := conditions.Get(sm, v1alpha1.OwnerProtectedCondition)
	if v.Settled(last) {
		r.differing.Over(req)
		return 0, s.unreadable
	}
	now := r.Clock.Now()
	if wait := r.differing.Until(req, v.ReportDelay(last), now).Sub(now); wait > 0 {
		return wait, s.unreadable
	}
	if err := r.report(ctx, sm, v); err != nil {
		return 0, errors.Join(client.IgnoreNotFound(err), s.unreadable)
	}
	r.differing.Over(req)
	return 0, s.unreadable
}

// observe returns nil if the object does not use the agent or is paused. It also returns nil before the first
// connection attempt, so that a starting manager does not change the condition.
func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	if patternsOf(sm) == "" && !conditions.Has(sm, v1alpha1.OwnerProtectedCondition) {
		return nil, nil
	}
	s := &scope{scheduled: sm, cluster: workload.ClusterKey(sm)}
	_, paused, err := workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName)
	if err != nil || paused {
		return nil, err
	}
	if s.machine, err = r.Children.Machine(ctx, sm); err != nil {
		return nil, err
	}
	if s.host, err = r.Children.Host(ctx, sm, s.machine); err != nil {
		return nil, err
	}
	if s.nodeName() == "" {
		return s, nil
	}
	s.outcome, s.tried = r.Results.Outcome(s.cluster)
	err = r.observeNode(ctx, s)
	switch {
	case err == nil:
	case !workload.NotConnected(err):
		s.unreadable = err
	case r.ClusterCache.GetHealthCheckingState(ctx, s.cluster).LastProbeTime.IsZero():
		return nil, nil // The first connection attempt triggers a reconcile, also if it fails.
	default:
		s.disconnected = true
	}
	return s, nil
}

func (r *Reconciler) observeNode(ctx context.Context, s *scope) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readsFor)
	defer cancel()
	for _, w := range []workload.Watch{r.nodes, r.pods} {
		if err := w.Start(ctx, s.cluster); err != nil {
			return err
		}
	}
	reader, err := r.ClusterCache.GetReader(ctx, s.cluster)
	if err != nil {
		return err
	}
	if s.node, err = workload.Node(ctx, reader, s.nodeName()); err != nil {
		return err
	}
	pods := &corev1.PodList{}
	// There is one pod per Node. They are only read, so the list is not copied.
	if err := reader.List(ctx, pods, client.InNamespace(reclaimapi.Namespace), agentLabels, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pods of the reclaim agent: %w", err)
	}
	s.pod = agentOn(pods.Items, s.nodeName())
	return nil
}

// patternsOf returns the hash of the programs that the agent has to watch for, empty for none.
func patternsOf(sm *v1alpha1.ScheduledMachine) string {
	c := reclaimapi.ConfigFor(sm.Spec.KillIfCommands)
	if c.Inert() {
		return ""
	}
	return c.Hash()
}

func (s *scope) nodeName() string { return s.host.Node }

// facts converts the observed objects to the facts of the decision.
func (s *scope) facts() Facts {
	f := Facts{
		Wanted: patternsOf(s.scheduled), Leaving: s.leaving(), Disconnected: s.disconnected, Unreadable: s.unreadable != nil,
		Tried: s.tried, Elsewhere: s.outcome.Elsewhere, Failure: s.outcome.Of(s.nodeName()).Text, Doubt: s.host.NodeRejection(),
	}
	if s.node != nil || s.disconnected || s.unreadable != nil {
		f.Node = s.nodeName()
	}
	if s.node != nil {
		f.Said = s.node.Annotations[reclaimapi.StateAnnotation]
		f.Changed, f.Refused = s.hostMismatch(), s.refused()
	}
	if s.pod != nil {
		f.Pod, f.Running, f.Ready, f.Trouble = true, running(s.pod), workload.Ready(s.pod), s.trouble()
	}
	return f
}

// trouble returns why the agent's pod is not Ready. If the Node is not Ready, the pod's own state is outdated.
func (s *scope) trouble() string {
	if s.node != nil && !nodeReady(s.node) {
		return "the Node is not Ready either"
	}
	return troubleOf(s.pod)
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// hostMismatch returns why requests from the Node are refused, empty if they are served. Either the Node reports
// another machine ID than before, or the agent exited with code 3 and is not running. A restarted container still has
// the exit code of an earlier run in its status.
func (s *scope) hostMismatch() string {
	now, first := s.node.Status.NodeInfo.MachineID, children.Known(s.scheduled, s.machine).MachineID
	switch {
	case now != "" && first != "" && now != first:
		return fmt.Sprintf("Node %s has the machine ID %q, and had %q first", s.node.Name, clip.To(clip.Line(now), maxID), first)
	case s.pod != nil && !running(s.pod) && exitOf(s.pod) == exitIdentity:
		return fmt.Sprintf("Node %s has another machine ID than its host, and the agent refused a request of the owner", s.node.Name)
	default:
		return ""
	}
}

// refused returns the request on the Node as text, empty if there is none.
func (s *scope) refused() string {
	a := s.node.Annotations
	if !reclaimapi.Requested(a) {
		return ""
	}
	return v1alpha1.ReclaimRecord{Reason: a[reclaimapi.ReasonAnnotation], RequestedAt: a[reclaimapi.RequestedAtAnnotation]}.Screened().Requested()
}

// leaving reports whether the machine is being removed, or its owner has requested it. The agent is then removed, or
// has nothing more to report.
func (s *scope) leaving() bool {
	sm := s.scheduled
	return sm.BeingReclaimed() || sm.Spec.KillSwitch || !sm.DeletionTimestamp.IsZero() ||
		s.machine != nil && !s.machine.DeletionTimestamp.IsZero() ||
		s.node != nil && (!s.node.DeletionTimestamp.IsZero() || reclaimapi.Requested(s.node.Annotations) && s.hostMismatch() == "")
}

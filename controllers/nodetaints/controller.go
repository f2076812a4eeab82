// SPDX-License-Identifier: Apache-2.0

// Package nodetaints applies spec.nodeTaints to the Node of a machine. It removes taints that it applied earlier and
// that the spec no longer has. Package internal/nodetaints decides; this package reads the Node, and writes it with one
// locked patch.
//
// It is the only writer of status.appliedNodeTaints and of the condition NodeTainted. Package scheduledmachine writes
// the other parts of the status. Both patch with a lock, so that neither overwrites the other. Status changes trigger
// neither, so that they cannot trigger each other endlessly.
package nodetaints

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/nodetaints"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// nodesWatch is the name of this controller's watch on Nodes.
const nodesWatch = "nodetaints-nodes"

// Reconciler reconciles the taints of Nodes.
type Reconciler struct {
	// Clock is the time source, for conditions and back-offs only.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads Machines.
	Children children.Reader
	// Actuate writes status to the management cluster, and Nodes.
	Actuate *actuate.Actuator
	// ClusterCache provides the connections to workload clusters.
	ClusterCache clustercache.ClusterCache

	nodes       workload.Watch
	watchFilter string
	fresh       wake.Freshness
}

// scope holds what one reconcile reads.
type scope struct {
	scheduled *v1alpha1.ScheduledMachine
	cluster   client.ObjectKey
	// machine is nil if there is none.
	machine *clusterv1.Machine
	// node is nil if there is none, or if it cannot be read.
	node *corev1.Node
	// connected is false if the Node cannot be read for lack of a connection.
	connected bool
}

// Reconcile reconciles the taints of one Node.
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
	err := r.reconcile(ctx, sm)
	return r.fresh.Meet(req, r.Clock.Now(), err)
}

// reconcile observes, decides, acts and reports.
func (r *Reconciler) reconcile(ctx context.Context, sm *v1alpha1.ScheduledMachine) error {
	s, err := r.observe(ctx, sm)
	if err != nil || s == nil {
		return err
	}
	d := nodetaints.Decide(s.facts())
	actErr := r.act(ctx, s, d)
	switch {
	case apierrors.IsConflict(actErr):
		return actErr // The cache does not have the newer Node yet.
	case actuate.IsSuppressed(actErr):
		return actErr // The Node and its report are unchanged.
	case actuate.Gone(actErr):
		return nil // The event of the Node's deletion triggers a reconcile.
	case workload.NotConnected(actErr):
		d, actErr = nodetaints.Decision{Outcome: nodetaints.Unseen}, nil
	}
	return errors.Join(actErr, client.IgnoreNotFound(r.report(ctx, s, d, actErr)))
}

// observe returns nil if the object is paused or the Node is not accepted. It also returns nil before the first
// connection attempt, so that a starting manager does not change the status.
func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	s := &scope{scheduled: sm, cluster: workload.ClusterKey(sm), connected: true}
	_, paused, err := workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName)
	if err != nil || paused {
		return nil, err
	}
	if s.machine, err = r.Children.Machine(ctx, sm); err != nil {
		return nil, err
	}
	host, err := r.Children.Host(ctx, sm, s.machine)
	switch {
	case err != nil, host.NodeRejected():
		return nil, err // It is unknown which Node is this machine's: the status does not change.
	case host.Node == "":
		return s, nil
	}
	err = r.observeNode(ctx, s, host.Node)
	if workload.NotConnected(err) {
		s.connected, err = false, nil
		if r.ClusterCache.GetHealthCheckingState(ctx, s.cluster).LastProbeTime.IsZero() {
			return nil, nil // The first connection attempt triggers a reconcile, also if it fails.
		}
	}
	return s, err
}

func (r *Reconciler) observeNode(ctx context.Context, s *scope, name string) (err error) {
	if err := r.nodes.Start(ctx, s.cluster); err != nil {
		return err
	}
	reader, err := r.ClusterCache.GetReader(ctx, s.cluster)
	if err != nil {
		return err
	}
	s.node, err = workload.Node(ctx, reader, name)
	return err
}

// facts converts the observed objects to the facts of the decision, which has no Kubernetes types.
func (s *scope) facts() nodetaints.Facts {
	f := nodetaints.Facts{Unseen: !s.connected, Leaving: s.leaving()}
	for _, t := range s.scheduled.Spec.NodeTaints {
		f.Desired = append(f.Desired, nodetaints.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	if s.node == nil {
		return f
	}
	f.Node = &nodetaints.Node{}
	for _, c := range s.node.Status.Conditions {
		f.Node.Ready = f.Node.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	for _, t := range s.node.Spec.Taints {
		f.Node.Taints = append(f.Node.Taints, taintOf(t))
	}
	if record, ok := s.node.Annotations[v1alpha1.NodeAppliedTaintsAnnotation]; ok {
		f.Node.Record = &record
	}
	return f
}

func taintOf(t corev1.Taint) nodetaints.Taint {
	return nodetaints.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
}

// leaving reports whether the machine is being removed. Taint changes must not delay its removal.
func (s *scope) leaving() bool {
	sm := s.scheduled
	return sm.BeingReclaimed() || sm.Spec.KillSwitch || !sm.DeletionTimestamp.IsZero() ||
		s.machine != nil && !s.machine.DeletionTimestamp.IsZero()
}

// act writes the taints and their record to the Node in one patch. The patch replaces the whole list, so that it needs
// the lock. Without the lock, a taint that another writer added meanwhile would be lost.
func (r *Reconciler) act(ctx context.Context, s *scope, d nodetaints.Decision) error {
	if d.Outcome != nodetaints.Write {
		return nil
	}
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, s.cluster)
	if err != nil {
		return err
	}
	before := s.node.DeepCopy()
	s.node.Spec.Taints = merge(d.Plan.Taints, before.Spec.Taints)
	if s.node.Annotations == nil {
		s.node.Annotations = map[string]string{}
	}
	s.node.Annotations[v1alpha1.NodeAppliedTaintsAnnotation] = nodetaints.Format(d.Plan.Applied)
	if len(d.Plan.Applied) == 0 {
		delete(s.node.Annotations, v1alpha1.NodeAppliedTaintsAnnotation)
	}
	action := remote.For(actuate.Intent{
		Kind: audit.NodePatch, Why: "Taints", At: r.Clock.Now(), Machine: client.ObjectKeyFromObject(s.scheduled), Cluster: s.cluster,
	})
	if err := action.PatchLocked(ctx, s.node, before); err != nil {
		return fmt.Errorf("tainting: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Changed taints", "Node", s.node.Name, "applied", d.Plan.Applied)
	return nil
}

// merge returns the planned taints. A taint that the Node already has retains its timeAdded.
func merge(planned []nodetaints.Taint, current []corev1.Taint) []corev1.Taint {
	var taints []corev1.Taint
	for _, p := range planned {
		t := corev1.Taint{Key: p.Key, Value: p.Value, Effect: corev1.TaintEffect(p.Effect)}
		for i := range current {
			if current[i].MatchTaint(&t) {
				t.TimeAdded = current[i].TimeAdded
			}
		}
		taints = append(taints, t)
	}
	return taints
}

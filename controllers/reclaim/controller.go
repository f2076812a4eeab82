// SPDX-License-Identifier: Apache-2.0

// Package reclaim answers one question: did the Node of a machine ask for its
// owner, and what is the next step of giving it back? It has its own queue and its
// own client without a rate limit: nothing else may make an owner wait.
package reclaim

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Reconciler gives machines back to owners who ask for them.
type Reconciler struct {
	// Clock tells the time, for reports only: no step depends on it.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines, Machines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads what is to be removed.
	Children children.Reader
	// Actuate writes to the management cluster, without a client-side rate limit.
	Actuate *actuate.Actuator
	// ClusterCache reaches the Nodes.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// Rush is told of the owners who are being served; nil is not.
	Rush *wake.Rush
	// Hooks says what a removal does about deletion hooks of others.
	Hooks actuate.Hooks

	nodes       nodeWatcher
	watchFilter string
	// told holds what was last said of a request that is not served, by ScheduledMachine.
	told   sync.Map
	surges once
	// fresh knows of Machines that were ejected, and that the cache shows as they were.
	fresh wake.Freshness
}

// nodeWatcher watches the Nodes of a connected workload cluster; it is idempotent.
type nodeWatcher interface {
	Start(ctx context.Context, cluster client.ObjectKey) error
}

// scope holds what one reconcile reads.
type scope struct {
	scheduled *v1alpha1.ScheduledMachine
	// cluster is nil if there is none.
	cluster *clusterv1.Cluster
	// node is nil if there is none, or if it cannot be seen.
	node *corev1.Node
	// children are what is to be removed.
	children children.Set
}

// Reconcile moves an emergency reclaim one step on. Without one it does nothing.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.told.Delete(req.NamespacedName)
		r.fresh.Forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.watchFilter != "" && !labels.HasWatchLabel(sm, r.watchFilter) {
		return ctrl.Result{}, nil // Its Cluster, Machine or Node woke us; it is another manager's.
	}
	s, err := r.observe(ctx, sm)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	if wait := r.fresh.Wait(req, s.machineVersion()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	facts := r.facts(s)
	step := lifecycle.DecideReclaim(facts)
	r.reportScreened(ctx, s, screened(facts, step))
	if step == lifecycle.Disarm { // It only writes down what has happened.
		if wait := r.Rush.Wait(sm.ReclaimTimes(), r.Clock.Now()); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	err = r.serve(ctx, req, s, step)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 1}, nil // A newer object is on its way to the cache.
	}
	return ctrl.Result{}, err
}

// serve carries out one step. While it takes a Machine away, an owner waits, and what was
// read of the Machine is out of date once it has.
func (r *Reconciler) serve(ctx context.Context, req ctrl.Request, s *scope, step lifecycle.Step) error {
	takes := s.children.Machine != nil && !s.deleted() && (step == lifecycle.Remember || step == lifecycle.Eject)
	if !takes {
		return r.act(ctx, s, step)
	}
	defer r.Rush.Serve()()
	read := s.machineVersion()
	err := r.act(ctx, s, step)
	if err == nil {
		r.fresh.Late(req, read)
	}
	return err
}

// observe returns nil for an object that is paused.
func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	cluster, paused, err := workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName)
	if err != nil || paused {
		return nil, err
	}
	s := &scope{scheduled: sm, cluster: cluster}
	if s.children, err = r.Children.Read(ctx, sm, s.scheduled.BeingReclaimed()); err != nil {
		return nil, fmt.Errorf("reading children: %w", err)
	}
	s.node, err = r.observeNode(ctx, workload.ClusterKey(sm), s.nodeName())
	return s, err
}

// observeNode watches the Nodes of the cluster and returns the one of that name.
// A cluster that is not connected shows none: its connection wakes us.
func (r *Reconciler) observeNode(ctx context.Context, cluster client.ObjectKey, name string) (*corev1.Node, error) {
	if err := r.nodes.Start(ctx, cluster); err != nil {
		return nil, workload.IgnoreNotConnected(err)
	}
	if name == "" {
		return nil, nil
	}
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if err != nil {
		return nil, workload.IgnoreNotConnected(err)
	}
	return workload.Node(ctx, reader, name)
}

// machineVersion is the version of the Machine that the cache shows, empty if there is
// none.
func (s *scope) machineVersion() string {
	if s.children.Machine == nil {
		return ""
	}
	return s.children.Machine.ResourceVersion
}

// nodeName is the Node of the Machine; without a Machine, the Node whose request
// was served last and may have to be cleared.
func (s *scope) nodeName() string {
	if m := s.children.Machine; m != nil {
		return m.Status.NodeRef.Name
	}
	return s.served().Node
}

// returned reports whether something of the machine is there although its owner
// has the box: whoever made it had not yet seen the schedule go off. A person may
// ask at that instant; a Node asks only when there is a Machine.
func (s *scope) returned() bool {
	_, reclaimed := s.scheduled.ServedReclaim()
	return reclaimed && !s.scheduled.ScheduleEnabled() && (s.children.Machine != nil || s.children.Infrastructure != nil)
}

// deleted reports whether the Machine is being deleted.
func (s *scope) deleted() bool {
	return s.children.Machine != nil && !s.children.Machine.DeletionTimestamp.IsZero()
}

// asked is the request that is being served, or else was served last.
func (s *scope) asked() v1alpha1.ReclaimRecord {
	if record, ok := s.scheduled.ReclaimRequest(); ok {
		return record
	}
	return s.served()
}

// request is the request that is being served, zero if there is none.
func (s *scope) request() v1alpha1.ReclaimRecord {
	record, _ := s.scheduled.ReclaimRequest()
	return record
}

// served is the request that turned the schedule off, zero if there is none.
func (s *scope) served() v1alpha1.ReclaimRecord {
	record, _ := s.scheduled.ServedReclaim()
	return record
}

// facts is the border between Kubernetes and the decision.
func (r *Reconciler) facts(s *scope) lifecycle.ReclaimFacts {
	f := lifecycle.ReclaimFacts{
		Remembered: s.scheduled.BeingReclaimed(),
		Returned:   s.returned(),
		Request:    judge(s.node, s.children.Machine, s.served()),
		Ejected:    s.children.Removed(r.Hooks),
		// A kind that cannot be read is no proof of absence.
		InfrastructureGone: s.children.InfrastructureState() == lifecycle.Absent && len(s.children.Problems) == 0,
	}
	if m := s.children.Machine; m != nil {
		f.Machine, f.ControlPlane = presence(m), util.IsControlPlaneMachine(m)
	}
	// A person who asked did not know the Node's UID.
	if uid := s.asked().NodeUID; s.node != nil && (uid == "" || uid == s.node.UID) {
		f.Node, f.NodeAsked, f.Evicting = presence(s.node), uid != "", actuate.Evicting(s.node)
	}
	return f
}

func presence(obj client.Object) lifecycle.Presence {
	if obj.GetDeletionTimestamp().IsZero() {
		return lifecycle.Present
	}
	return lifecycle.Leaving
}

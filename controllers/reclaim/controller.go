// SPDX-License-Identifier: Apache-2.0

// Package reclaim answers one question: did the Node of a machine ask for its
// owner, and what is the next step of giving it back? It has its own queue and its
// own client without a rate limit: nothing else may make an owner wait.
package reclaim

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// Reconciler gives machines back to owners who ask for them.
type Reconciler struct {
	// Clock tells the time, for reports and back-offs only: no step depends on it.
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
	// Roster is told of the machines that leave; nil need not know.
	Roster *roster.Roster
	// Rush is told of the owners who are being served, and of those who wait in vain;
	// nil is not.
	Rush *wake.Rush
	// Hooks says what a removal does about deletion hooks of others.
	Hooks children.Hooks

	nodes       nodeWatcher
	watchFilter string
	// told holds what was last said of a request that is not served, by ScheduledMachine.
	told sync.Map
	// ejected holds the UID of the Machine that was ejected last, by ScheduledMachine.
	ejected sync.Map
	// rejections are what was not believed of Nodes last.
	rejections telemetry.Rejections
	surges     telemetry.EventLimit
	// fresh knows of Machines that were ejected, and that the cache shows as they were.
	fresh wake.Freshness
	// patience knows for whom an owner waits.
	patience patience
	// looks are the looks at providers that are under way.
	looks looks
}

// nodeWatcher watches the Nodes of a connected workload cluster; it is idempotent.
type nodeWatcher interface {
	Start(ctx context.Context, cluster client.ObjectKey) error
}

// Reconcile moves an emergency reclaim one step on. Without one it does nothing.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.forgetAll(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.watchFilter != "" && !labels.HasWatchLabel(sm, r.watchFilter) {
		return ctrl.Result{}, nil // Its Cluster, Machine or Node woke us; it is another manager's.
	}
	s, err := r.observe(ctx, sm)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	if wait := r.fresh.Hold(req, s.machineVersion(), r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	facts := r.facts(s)
	step, urgent := lifecycle.Urgent(facts)
	if !urgent {
		r.look(ctx, s)
		facts = r.facts(s)
		step = lifecycle.DecideReclaim(facts)
	}
	r.reportScreened(ctx, s, screened(facts, step))
	r.reportAnnotations(ctx, s)
	if step == lifecycle.Disarm { // It only writes down what has happened.
		if wait := r.Rush.Wait(sm.ReclaimTimes(), r.Clock.Now()); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	err = r.serve(ctx, req, s, step)
	s.unrecorded = actuate.IgnoreSuppressed(r.recordGiveBack(ctx, s))
	return r.end(req, s, step, err)
}

// forgetAll forgets an object that is gone.
func (r *Reconciler) forgetAll(req ctrl.Request) {
	r.told.Delete(req.NamespacedName)
	r.ejected.Delete(req.NamespacedName)
	r.rejections.Forget(req.NamespacedName)
	r.fresh.Forget(req)
	r.Rush.Unstall(req)
}

// serve carries out one step. While it takes a Machine away, an owner waits, and what was
// read of the Machine is out of date once it has.
func (r *Reconciler) serve(ctx context.Context, req ctrl.Request, s *scope, step lifecycle.Step) error {
	takes := s.children.Machine != nil && !s.deleted() && (step == lifecycle.Remember || step == lifecycle.Eject)
	if !takes {
		return r.act(ctx, s, step)
	}
	defer r.Rush.Serve()()
	err := r.act(ctx, s, step)
	if s.ejected {
		r.fresh.Late(req, s.machineVersion())
	}
	return err
}

// end says when to look again, and how urgent that is. What could not be read is an
// error only when everything else has been done.
func (r *Reconciler) end(req ctrl.Request, s *scope, step lifecycle.Step, actErr error) (ctrl.Result, error) {
	who := waitOf(s, step)
	r.patience.note(req, who)
	result, err := r.fresh.Meet(req, r.Clock.Now(), actErr)
	switch {
	case actuate.IsSuppressed(actErr):
		r.reportSuppressed(req, s, step)
	case errors.Is(errors.Join(actErr, s.unread), errCrowd): // It says nothing of this machine.
	case err != nil && who == ownerWaits, err != nil && step == lifecycle.Eject:
		r.reportStalled(req, s, string(apierrors.ReasonForError(err)), err)
	case s.unread != nil && s.scheduled.BeingReclaimed():
		r.reportStalled(req, s, "unread", s.unread)
	case actErr == nil:
		r.Rush.Unstall(req)
	}
	if actErr == nil {
		err = errors.Join(s.unread, s.unseen, s.unrecorded)
	}
	if errors.Is(err, errCrowd) {
		result, err = ctrl.Result{RequeueAfter: nextLook}, nil
	}
	if who != ownerWaits {
		result.Priority = new(0) // Who has asked since comes first.
	}
	return result, err
}

// facts is the border between Kubernetes and the decision.
func (r *Reconciler) facts(s *scope) lifecycle.ReclaimFacts {
	f := lifecycle.ReclaimFacts{
		Remembered: s.scheduled.BeingReclaimed(),
		Returned:   s.returned(),
		Request:    s.judge(s.node),
		Expedited:  s.children.Expedited(),
		Ejected:    s.looked && s.children.Removed(r.Hooks),
		// What cannot be read is no proof of absence.
		InfrastructureGone: s.looked && s.unread == nil && s.children.InfrastructureState() == lifecycle.Absent && len(s.children.Problems) == 0,
	}
	if m := s.children.Machine; m != nil {
		f.Machine, f.ControlPlane = s.children.MachineState(), util.IsControlPlaneMachine(m)
		f.ForOwner = children.ForOwner(m, r.Clock.Now())
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

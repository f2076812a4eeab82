// SPDX-License-Identifier: Apache-2.0

// Package machinehook answers one question: a Machine is being deleted; is
// everything done that must be done before its drain, and before its termination?
//
// It implements Cluster API's deletion hooks on every Machine that carries our two
// annotations: those of ScheduledMachines have them from the start, on others their
// owners put them. What is to be done is asked of the extensions that
// MachineDeletionHooks register. Cluster API never ends a wait for a hook, so this
// package bounds each. A reconcile begins calls, never waits for one, and is woken by the
// answer. It keeps nothing in memory that matters: when a wait began is on the Machine,
// and what an extension said is asked again.
package machinehook

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// Extensions are asked as hookclient.Client does. It may be used by many at the same time.
type Extensions interface {
	// Call asks one. It must end soon after its context.
	Call(context.Context, *v1alpha1.MachineDeletionHook, *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error)
	// Forget forgets one that is gone.
	Forget(hook types.UID)
}

// Reconciler lets Machines go.
type Reconciler struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Reader reads Machines, Clusters, ScheduledMachines, MachineDeletionHooks and the
	// metadata of Namespaces from the manager's cache.
	Reader client.Reader
	// Live reads Clusters and ScheduledMachines from the API server.
	Live client.Reader
	// Actuate writes to the management cluster.
	Actuate *actuate.Actuator
	// Recorder records events.
	Recorder events.EventRecorder
	// Extensions are asked.
	Extensions Extensions
	// Roster says which Machines may start to leave; nil lets all.
	Roster *roster.Roster
	// Desk asks them; nil is one that SetupWithManager starts.
	Desk *leaving.Desk
	// Steps are done beside them.
	Steps leaving.Steps
	// Woken are what wakes a Machine whose Steps have come further.
	Woken []source.Source

	watchFilter string
	fresh       wake.Freshness
	// told holds the UIDs of Machines whose urgent deletion extensions were told of.
	told sync.Map
}

// Reconcile takes our hooks off a Machine that may go on.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, machine); err != nil {
		r.fresh.Forget(req)
		if apierrors.IsNotFound(err) {
			r.Roster.Gone(roster.Orphan(req.NamespacedName), r.Clock.Now())
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if machine.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	read := machine.ResourceVersion
	if wait := r.fresh.Hold(req, read, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	again, err := r.reconcile(ctx, machine)
	r.fresh.Wrote(req, read, machine.ResourceVersion)
	now := r.Clock.Now()
	result, err := r.fresh.Meet(req, now, client.IgnoreNotFound(err))
	if err == nil && result.RequeueAfter == 0 && !again.IsZero() {
		result.RequeueAfter = max(again.Sub(now), time.Millisecond)
	}
	return result, err
}

// reconcile observes, decides and acts, and says when to look again.
func (r *Reconciler) reconcile(ctx context.Context, machine *clusterv1.Machine) (again time.Time, err error) {
	s, err := r.observe(ctx, machine)
	if err != nil {
		return time.Time{}, err
	}
	if s == nil {
		r.askNobody(machine.UID)
		return time.Time{}, nil
	}
	r.enroll(s)
	f := s.facts(r.Clock.Now())
	return r.act(ctx, s, f, decide(f))
}

// askNobody takes back what somebody is being asked about a Machine.
func (r *Reconciler) askNobody(machine types.UID) {
	r.Desk.Drop(machine)
	r.Steps.Forget(machine)
}

// act carries out a step, and returns when to look again.
func (r *Reconciler) act(ctx context.Context, s *scope, f facts, next step) (again time.Time, err error) {
	if next != askBeforeDrain && next != askBeforeTermination {
		r.askNobody(s.machine.UID)
	}
	if next != rest {
		if err := r.leave(s).Permit(ctx, s.machine); err != nil {
			return time.Time{}, err
		}
		if !r.mayStart(s, f) {
			return time.Time{}, nil // The planner enqueues it.
		}
		defer r.tried(s)
	}
	switch next {
	case rest:
		return time.Time{}, nil
	case letGo:
		return time.Time{}, r.leave(s).LetGo(ctx, s.machine, actuate.Waits{}, v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation)
	case tell:
		r.tell(ctx, s)
		return time.Time{}, nil
	case askBeforeDrain:
		return r.ask(ctx, s, hooksv1.BeforeDrain, v1alpha1.PreDrainHookAnnotation)
	case askBeforeTermination:
		return r.ask(ctx, s, hooksv1.BeforeTermination, v1alpha1.PreTerminateHookAnnotation)
	default:
		return time.Time{}, fmt.Errorf("unknown step %q", next)
	}
}

// leave is how a Machine is let go: why is written on it, where nobody has yet.
func (r *Reconciler) leave(s *scope) actuate.Action {
	now := r.Clock.Now()
	i := actuate.Intent{
		Reason: s.reason(now), At: now, Cycle: s.cycle, Machine: client.ObjectKeyFromObject(s.machine),
		Cluster: client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.ClusterName},
	}
	if s.clusterGoes() {
		i.Lane = v1alpha1.ExemptLane
	}
	if s.scheduled != nil {
		i.Machine, i.Grace = client.ObjectKeyFromObject(s.scheduled), children.GraceOf(s.scheduled)
	}
	return r.Actuate.For(i)
}

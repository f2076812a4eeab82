// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// Extensions calls extensions, as hookclient.Client does. Implementations must be safe for concurrent use.
type Extensions interface {
	// Call sends one request to an extension. It must return soon after its context ends.
	Call(context.Context, *v1alpha1.MachineDeletionHook, *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error)
	// Forget drops the state of a deleted MachineDeletionHook.
	Forget(hook types.UID)
}

// HookReconciler implements Cluster API's deletion hooks on Machines that have 5-Spot's two hook annotations. Machines
// of ScheduledMachines have them from their creation. People add them to other Machines.
//
// It calls the extensions that MachineDeletionHooks register, and checks the built-in steps. It removes the pre-drain
// hook and the pre-terminate hook when all of them are done or have passed their deadline. Cluster API has no timeout
// for a hook, so this controller has one.
//
// A reconcile starts calls and returns. The result of a call enqueues the Machine. The start of a phase is on the
// Machine. After a restart, extensions are called again, and notified again of urgent deletions.
type HookReconciler struct {
	// Clock is the source of the time.
	Clock clock.PassiveClock
	// APIClock returns the trust in Clock. With nil, Clock is trusted.
	APIClock *apiclock.Clock
	// Reader reads Machines, Clusters, ScheduledMachines, MachineDeletionHooks and the metadata of Namespaces
	// from the manager's cache.
	Reader client.Reader
	// Live reads Clusters and ScheduledMachines from the API server.
	Live client.Reader
	// Actuate writes to the management cluster.
	Actuate *actuate.Actuator
	// Recorder records Events.
	Recorder events.EventRecorder
	// Extensions calls the extensions.
	Extensions Extensions
	// HookCaller runs the calls in the background. SetupWithManager creates it.
	HookCaller *leaving.BackgroundCalls
	// Steps are the built-in steps. They run in parallel with the extensions.
	Steps leaving.Steps
	// Woken are the sources that enqueue a Machine when one of its Steps makes progress.
	Woken []source.Source
	// WatchFilter is the value of Cluster API's watch label, empty for all objects.
	WatchFilter string

	fresh wake.Freshness
	// notified holds the UIDs of the Machines whose urgent deletion was sent to the extensions.
	notified sync.Map
	// misses holds each counted miss.
	misses sync.Map
}

// Reconcile removes 5-Spot's hooks from a Machine that may continue its deletion.
func (r *HookReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, machine); err != nil {
		r.fresh.Forget(req)
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
	result, err := r.fresh.ResultOf(req, now, client.IgnoreNotFound(err))
	if err == nil && result.RequeueAfter == 0 && !again.IsZero() {
		result.RequeueAfter = max(again.Sub(now), time.Millisecond)
	}
	return result, err
}

// reconcile observes, decides and acts. again is when to reconcile again, zero if only an event changes the
// result.
func (r *HookReconciler) reconcile(ctx context.Context, machine *clusterv1.Machine) (again time.Time, err error) {
	s, err := r.observe(ctx, machine)
	if err != nil {
		return time.Time{}, err
	}
	if s == nil {
		r.cancelCalls(machine.UID)
		return time.Time{}, nil
	}
	return r.act(ctx, s, decide(s.facts(r.Clock.Now())))
}

// cancelCalls cancels all open calls for a Machine and drops the state of its steps.
func (r *HookReconciler) cancelCalls(machine types.UID) {
	r.HookCaller.ForgetMachine(machine)
	r.Steps.Forget(machine)
}

// act carries out an action. again is when to reconcile again.
func (r *HookReconciler) act(ctx context.Context, s *scope, next nextAction) (again time.Time, err error) {
	if next != callBeforeDrain && next != callBeforeTermination {
		r.cancelCalls(s.machine.UID)
	}
	if next != noAction {
		if err := r.action(s).Permit(ctx, "releasing", s.machine); err != nil {
			return time.Time{}, err
		}
		if !r.mayStart(s, r.Clock.Now()) {
			r.cancelCalls(s.machine.UID) // If the planner withdrew its admission, the departure begins anew.
			return time.Time{}, nil      // The planner admits it on the Machine.
		}
	}
	switch next {
	case noAction:
		return time.Time{}, nil
	case removeHooks:
		return time.Time{}, r.action(s).RemoveHooks(ctx, s.machine, actuate.Waits{}, v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation)
	case notify:
		r.notifyExtensions(ctx, s)
		return time.Time{}, nil
	case callBeforeDrain:
		return r.callStepsAndExtensions(ctx, s, hooksv1.BeforeDrain, v1alpha1.PreDrainHookAnnotation)
	case callBeforeTermination:
		return r.callStepsAndExtensions(ctx, s, hooksv1.BeforeTermination, v1alpha1.PreTerminateHookAnnotation)
	default:
		return time.Time{}, fmt.Errorf("unknown action %q", next)
	}
}

// action returns the action that removes hooks. The first write also records the reason for the departure on the
// Machine.
func (r *HookReconciler) action(s *scope) actuate.Action {
	now := r.Clock.Now()
	i := intentOf(s.machine, s.scheduled, s.reason(now), now)
	if children.ClusterLeaves(s.cluster) {
		i.Lane = v1alpha1.ExemptLane
	}
	return r.Actuate.For(i)
}

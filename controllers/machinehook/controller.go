// SPDX-License-Identifier: Apache-2.0

// Package machinehook answers one question: a Machine is being deleted; is
// everything done that must be done before its drain, and before its termination?
//
// It implements Cluster API's deletion hooks on every Machine that carries our two
// annotations: those of ScheduledMachines have them from the start, on others their
// owners put them. What is to be done is asked of the extensions that
// MachineDeletionHooks register. Cluster API never ends a wait for a hook, so this
// package bounds each; it keeps nothing in memory that matters: when a wait began is
// on the Machine.
package machinehook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	labelsutil "sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// Caller asks an extension, as hookclient.Call does.
type Caller func(context.Context, *v1alpha1.MachineDeletionHook, *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error)

// Reconciler lets Machines go.
type Reconciler struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Reader reads Machines, Clusters, ScheduledMachines, MachineDeletionHooks and the
	// metadata of Namespaces from the manager's cache.
	Reader client.Reader
	// Live reads Clusters from the API server.
	Live client.Reader
	// Actuate writes to the management cluster.
	Actuate *actuate.Actuator
	// Recorder records events.
	Recorder events.EventRecorder
	// Call asks an extension.
	Call Caller

	watchFilter string
	// told holds the UIDs of Machines whose urgent deletion extensions were told of.
	told sync.Map
}

// scope holds what one reconcile reads.
type scope struct {
	machine *clusterv1.Machine
	// cluster is nil if there is none.
	cluster *clusterv1.Cluster
	// scheduled is nil for a Machine that belongs to somebody else.
	scheduled *v1alpha1.ScheduledMachine
	// hooks are the extensions to ask, in their order.
	hooks []v1alpha1.MachineDeletionHook
}

// Reconcile takes our hooks off a Machine that may go on.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if machine.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s, err := r.observe(ctx, machine)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	again, err := r.act(ctx, s, decide(s.facts()))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 1}, nil // A newer Machine is on its way to the cache.
	}
	if err != nil || again.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{RequeueAfter: max(again.Sub(r.Clock.Now()), time.Millisecond)}, nil
}

// observe returns nil for a Machine that is paused, or another manager's.
func (r *Reconciler) observe(ctx context.Context, machine *clusterv1.Machine) (*scope, error) {
	cluster, paused, err := workload.ClusterOf(ctx, r.Reader, r.Live, machine, machine.Spec.ClusterName)
	if err != nil || paused {
		return nil, err
	}
	s := &scope{machine: machine, cluster: cluster}
	if name := children.ParentOf(machine); name != "" {
		s.scheduled = &v1alpha1.ScheduledMachine{}
		switch err := r.Reader.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: name}, s.scheduled); {
		case apierrors.IsNotFound(err):
			s.scheduled = nil
		case err != nil:
			return nil, fmt.Errorf("reading ScheduledMachine: %w", err)
		}
	}
	if r.watchFilter != "" && !labelsutil.HasWatchLabel(s.labelled(), r.watchFilter) {
		return nil, nil
	}
	s.hooks, err = r.hooksFor(ctx, machine.Namespace)
	return s, err
}

// labelled is the object whose watch label says which manager serves the Machine: its
// ScheduledMachine. Without one, the Machine; and a Machine that says nothing belongs to
// whoever serves its Cluster, or nobody would take our hooks off it.
func (s *scope) labelled() client.Object {
	_, says := s.machine.Labels[clusterv1.WatchLabel]
	switch {
	case s.scheduled != nil:
		return s.scheduled
	case says || s.cluster == nil:
		return s.machine
	default:
		return s.cluster
	}
}

// hooksFor returns the extensions for a namespace in their order. A selector that
// cannot be read selects it: an extension is asked once too often rather than not.
func (r *Reconciler) hooksFor(ctx context.Context, namespace string) ([]v1alpha1.MachineDeletionHook, error) {
	list := &v1alpha1.MachineDeletionHookList{}
	if err := r.Reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing MachineDeletionHooks: %w", err)
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if len(list.Items) > 0 {
		if err := r.Reader.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
			return nil, fmt.Errorf("reading Namespace: %w", err)
		}
	}
	hooks := slices.DeleteFunc(list.Items, func(h v1alpha1.MachineDeletionHook) bool {
		if h.Spec.NamespaceSelector == nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(h.Spec.NamespaceSelector)
		return err == nil && !selector.Matches(labels.Set(ns.Labels))
	})
	slices.SortFunc(hooks, func(a, b v1alpha1.MachineDeletionHook) int { return strings.Compare(a.Name, b.Name) })
	return hooks, nil
}

// facts is the border between Kubernetes and the decision.
func (s *scope) facts() facts {
	m := s.machine
	f := facts{
		Deleting:       !m.DeletionTimestamp.IsZero(),
		Drained:        m.Status.Deletion != nil && !m.Status.Deletion.WaitForPreTerminateHookStartTime.IsZero(),
		ClusterLeaving: s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero(),
		NoNode:         !m.Status.NodeRef.IsDefined(),
		Trigger:        s.trigger(),
		Extensions:     len(s.hooks),
	}
	_, f.PreDrain = m.Annotations[v1alpha1.PreDrainHookAnnotation]
	_, f.PreTerminate = m.Annotations[v1alpha1.PreTerminateHookAnnotation]
	if ready := conditions.Get(m, clusterv1.MachineNodeReadyCondition); ready != nil {
		f.Unreachable = ready.Status == metav1.ConditionUnknown
	}
	return f
}

// trigger is why the Machine is being deleted.
func (s *scope) trigger() hooksv1.Trigger {
	sm := s.scheduled
	switch {
	case sm == nil:
		return hooksv1.TriggerExternal
	case sm.BeingReclaimed():
		return hooksv1.TriggerEmergencyReclaim
	case sm.Spec.KillSwitch:
		return hooksv1.TriggerKillSwitch
	case !sm.DeletionTimestamp.IsZero(), s.windowClosed():
		return hooksv1.TriggerSchedule
	default:
		return hooksv1.TriggerExternal
	}
}

// windowClosed reports whether the schedule was on and did not want the machine when
// it began to leave. A schedule that is off, or cannot be read, moves nothing.
func (s *scope) windowClosed() bool {
	parsed, err := schedule.Parse(validation.ScheduleSpec(&s.scheduled.Spec.Schedule))
	if err != nil || !s.scheduled.ScheduleEnabled() {
		return false
	}
	wanted, _ := parsed.At(children.LeavingSince(s.machine))
	return !wanted
}

// act carries out a step, and returns when to look again.
func (r *Reconciler) act(ctx context.Context, s *scope, next step) (again time.Time, err error) {
	switch next {
	case rest:
		return time.Time{}, nil
	case letGo:
		return time.Time{}, r.Actuate.LetGo(ctx, s.machine, actuate.Waits{}, v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation)
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

// ask asks one extension after the other until one holds the Machine. Nobody holds
// it: our hook of the phase goes.
func (r *Reconciler) ask(ctx context.Context, s *scope, phase hooksv1.Phase, hook string) (again time.Time, err error) {
	if err := r.Actuate.MarkLeaving(ctx, s.machine); err != nil {
		return time.Time{}, err
	}
	var skip actuate.Waits
	var notes []string
	until := s.began(phase)
	for i := range s.hooks {
		h := &s.hooks[i]
		until = until.Add(time.Duration(h.Spec.DeadlineSeconds) * time.Second)
		answer, err := r.Call(ctx, h, s.request(phase))
		v := judge(h, answer, err, r.Clock.Now(), until)
		if v.note != "" {
			notes = append(notes, v.note)
		}
		if !v.again.IsZero() {
			return v.again, r.report(ctx, s, metav1.ConditionFalse, v1alpha1.WaitingForExtensionReason, notes)
		}
		if err == nil && phase == hooksv1.BeforeDrain {
			skip.Drain = skip.Drain || answer.SkipDrain
			skip.VolumeDetach = skip.VolumeDetach || answer.SkipVolumeDetachWait
		}
	}
	if err := r.report(ctx, s, metav1.ConditionTrue, v1alpha1.ExtensionsDoneReason, notes); err != nil {
		return time.Time{}, err
	}
	return time.Time{}, r.Actuate.LetGo(ctx, s.machine, skip, hook)
}

// began is when the wait for the extensions of a phase began. That of the second is in
// the status, where Cluster API writes it; decide asks nobody before.
func (s *scope) began(phase hooksv1.Phase) time.Time {
	if phase == hooksv1.BeforeTermination {
		return s.machine.Status.Deletion.WaitForPreTerminateHookStartTime.Time
	}
	return children.LeavingSince(s.machine)
}

// request is what extensions are asked.
func (s *scope) request(phase hooksv1.Phase) *hooksv1.BeforeMachineDeleteRequest {
	req := &hooksv1.BeforeMachineDeleteRequest{Machine: *s.machine.DeepCopy(), Phase: phase, Trigger: s.trigger()}
	req.Machine.ManagedFields = nil
	if s.scheduled != nil {
		req.ScheduledMachine = s.scheduled.Name
	}
	return req
}

// tell tells all extensions of a Machine that waits for nobody, once, and in no order.
func (r *Reconciler) tell(ctx context.Context, s *scope) {
	if _, told := r.told.LoadOrStore(s.machine.UID, true); told {
		return
	}
	var wg sync.WaitGroup
	for i := range s.hooks {
		wg.Go(func() {
			if _, err := r.Call(ctx, &s.hooks[i], s.request(hooksv1.BeforeDrain)); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Telling extension", "MachineDeletionHook", s.hooks[i].Name)
			}
		})
	}
	wg.Wait()
}

// report writes the condition on the Machine, and an Event if that changed it.
func (r *Reconciler) report(ctx context.Context, s *scope, status metav1.ConditionStatus, reason string, notes []string) error {
	m, message := s.machine, clip.Message(strings.Join(notes, "; "))
	before := m.DeepCopy()
	conditions.Set(m, metav1.Condition{Type: v1alpha1.ReadyToLeaveCondition, Status: status, Reason: reason, Message: message})
	err := r.Actuate.PatchStatus(ctx, m, before)
	if err == nil && message != "" && m.ResourceVersion != before.ResourceVersion {
		r.Recorder.Eventf(m, nil, corev1.EventTypeNormal, reason, "BeforeMachineDelete", "%s", message)
	}
	return err
}

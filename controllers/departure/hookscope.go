// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/extensions"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// scope holds the objects that one reconcile reads.
type scope struct {
	machine *clusterv1.Machine
	// cluster is nil if the Cluster does not exist.
	cluster *clusterv1.Cluster
	// scheduled is nil for a Machine that 5-Spot did not make, and if the ScheduledMachine does not exist. It
	// may be another ScheduledMachine with the same name: see orphaned.
	scheduled *v1alpha1.ScheduledMachine
	// hooks are the extensions to call, sorted by name.
	hooks []v1alpha1.MachineDeletionHook
	// steps are the built-in steps that apply to the Machine.
	steps leaving.Steps
}

// observe reads the objects of a Machine. It returns nil for a Machine that another manager serves, and for one
// that is paused, by itself, its Cluster or its ScheduledMachine. A pause of the ScheduledMachine has no effect
// while its Cluster is being deleted.
func (r *HookReconciler) observe(ctx context.Context, machine *clusterv1.Machine) (*scope, error) {
	cluster, paused, err := workload.ClusterOf(ctx, r.Reader, r.Live, machine, machine.Spec.ClusterName)
	if err != nil || paused {
		return nil, err
	}
	s := &scope{machine: machine, cluster: cluster}
	if name := children.ParentOf(machine); name != "" {
		s.scheduled = &v1alpha1.ScheduledMachine{}
		key := client.ObjectKey{Namespace: machine.Namespace, Name: name}
		err := r.Reader.Get(ctx, key, s.scheduled)
		// The cache may lag behind. That must not separate the Machine from its ScheduledMachine.
		if apierrors.IsNotFound(err) {
			err = r.Live.Get(ctx, key, s.scheduled)
		}
		switch {
		case apierrors.IsNotFound(err):
			s.scheduled = nil
		case err != nil:
			return nil, fmt.Errorf("reading ScheduledMachine: %w", err)
		case annotations.HasPaused(s.scheduled) && !children.ClusterLeaves(s.cluster):
			return nil, nil
		}
	}
	if !s.servedBy(r.WatchFilter) {
		return nil, nil
	}
	if s.steps, err = r.Steps.For(ctx, machine); err != nil {
		return nil, err
	}
	s.hooks, err = extensions.For(ctx, r.Reader, machine.Namespace)
	return s, err
}

// servedBy reports whether the manager with this watch filter serves the Machine. The first watch label counts,
// in the order ScheduledMachine, Machine, Cluster. Without any label, every manager serves the Machine, so that
// its hooks are always removed. Each manager then calls the extensions, which must tolerate repeated calls (ADR
// 0014).
func (s *scope) servedBy(filter string) bool {
	var objects []client.Object
	if s.scheduled != nil {
		objects = append(objects, s.scheduled)
	}
	objects = append(objects, s.machine)
	if s.cluster != nil {
		objects = append(objects, s.cluster)
	}
	return workload.ServedBy(filter, objects...)
}

// mayStart reports whether a Machine may start to leave or has started. A Machine that another client deletes waits
// until the planner admits it, also if its ScheduledMachine does not exist any more. Owners' requests, kill switches and
// the deletion of the Cluster are exempt. The planner plans only Machines that 5-Spot made and this manager serves.
func (r *HookReconciler) mayStart(s *scope, now time.Time) bool {
	planned := s.orphaned() || s.scheduled != nil && children.MadeByUs(s.machine) && workload.MatchesFilter(r.WatchFilter, s.scheduled)
	return !planned || children.Exempt(s.scheduled, s.cluster) || !children.Held(s.machine, now)
}

// orphaned reports whether the Machine was made for a ScheduledMachine that does not exist any more.
func (s *scope) orphaned() bool {
	uid := types.UID("")
	if s.scheduled != nil {
		uid = s.scheduled.UID
	}
	return children.Orphaned(s.machine, uid)
}

// facts converts the objects to the input of decide.
func (s *scope) facts(now time.Time) facts {
	m := s.machine
	f := facts{
		Deleting:       !m.DeletionTimestamp.IsZero(),
		Drained:        m.Status.Deletion != nil && !m.Status.Deletion.WaitForPreTerminateHookStartTime.IsZero(),
		ClusterLeaving: s.cluster == nil || children.ClusterLeaves(s.cluster),
		NoNode:         !m.Status.NodeRef.IsDefined(),
		Trigger:        s.trigger(now),
		Steps:          len(s.hooks) + len(s.steps),
	}
	_, f.PreDrain = m.Annotations[v1alpha1.PreDrainHookAnnotation]
	_, f.PreTerminate = m.Annotations[v1alpha1.PreTerminateHookAnnotation]
	if ready := conditions.Get(m, clusterv1.MachineNodeReadyCondition); ready != nil {
		// Cluster API sets other reasons if it cannot read the Node: see scope.md, "never acts on missing information".
		f.Unreachable = ready.Status == metav1.ConditionUnknown && ready.Reason == clusterv1.MachineNodeReadyUnknownReason
	}
	return f
}

// trigger returns the reason for the deletion as the extension API defines it.
func (s *scope) trigger(now time.Time) hooksv1.Trigger {
	switch s.reason(now) {
	case v1alpha1.ReclaimedByOwner:
		return hooksv1.TriggerEmergencyReclaim
	case v1alpha1.KilledByPerson:
		return hooksv1.TriggerKillSwitch
	case v1alpha1.WindowClosed, v1alpha1.ScheduledMachineDeleted:
		return hooksv1.TriggerSchedule
	default:
		return hooksv1.TriggerExternal
	}
}

// reason returns why the Machine is being deleted. An owner's request and the kill switch override the
// departure record. A Machine that another client deleted may have no record yet.
func (s *scope) reason(now time.Time) v1alpha1.DepartureReason {
	d, recorded := children.DepartureOf(s.machine, now)
	sm := s.scheduled
	switch {
	case sm != nil && sm.BeingReclaimed():
		return v1alpha1.ReclaimedByOwner
	case sm != nil && sm.Spec.KillSwitch:
		return v1alpha1.KilledByPerson
	case recorded:
		return d.Reason
	case sm != nil && !sm.DeletionTimestamp.IsZero():
		return v1alpha1.ScheduledMachineDeleted
	case children.ClusterLeaves(s.cluster): // Cluster API deletes the Machines of the Cluster.
		return v1alpha1.ClusterDeleted
	default:
		return v1alpha1.DeletedByOthers
	}
}

// SPDX-License-Identifier: Apache-2.0

package machinehook

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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// scope holds what one reconcile reads.
type scope struct {
	machine *clusterv1.Machine
	// cluster is nil if there is none.
	cluster *clusterv1.Cluster
	// scheduled is nil for a Machine that belongs to somebody else, or whose ScheduledMachine is
	// gone. Another one may have its name.
	scheduled *v1alpha1.ScheduledMachine
	// hooks are the extensions to ask, in the order of their names.
	hooks []v1alpha1.MachineDeletionHook
	// steps are done beside them.
	steps leaving.Steps
	// cycle is the run of the planner that let the Machine start to leave; zero if none did.
	cycle int64
}

// observe returns nil for a Machine that is paused, by itself, its Cluster or its
// ScheduledMachine, or that is another manager's. A Cluster that goes waits for no
// ScheduledMachine that is paused.
func (r *Reconciler) observe(ctx context.Context, machine *clusterv1.Machine) (*scope, error) {
	cluster, paused, err := workload.ClusterOf(ctx, r.Reader, r.Live, machine, machine.Spec.ClusterName)
	if err != nil || paused {
		return nil, err
	}
	s := &scope{machine: machine, cluster: cluster}
	if name := children.ParentOf(machine); name != "" {
		s.scheduled = &v1alpha1.ScheduledMachine{}
		key := client.ObjectKey{Namespace: machine.Namespace, Name: name}
		err := r.Reader.Get(ctx, key, s.scheduled)
		if apierrors.IsNotFound(err) { // A cache that is late must not part the two.
			err = r.Live.Get(ctx, key, s.scheduled)
		}
		switch {
		case apierrors.IsNotFound(err):
			s.scheduled = nil
		case err != nil:
			return nil, fmt.Errorf("reading ScheduledMachine: %w", err)
		case annotations.HasPaused(s.scheduled) && !s.clusterGoes():
			return nil, nil
		}
	}
	if !s.servedBy(r.watchFilter) {
		return nil, nil
	}
	if s.steps, err = r.Steps.For(ctx, machine); err != nil {
		return nil, err
	}
	s.hooks, err = extensions.For(ctx, r.Reader, machine.Namespace)
	return s, err
}

// servedBy reports whether the Machine is for the manager with this filter. The first of
// its ScheduledMachine, itself and its Cluster that carries the watch label says so. If
// none does, it is for all: who else would take our hooks off? Extensions are then asked
// by each, which they must bear anyway (ADR 0022).
func (s *scope) servedBy(filter string) bool {
	var says []map[string]string
	if s.scheduled != nil {
		says = append(says, s.scheduled.Labels)
	}
	says = append(says, s.machine.Labels)
	if s.cluster != nil {
		says = append(says, s.cluster.Labels)
	}
	for _, labels := range says {
		if value, ok := labels[clusterv1.WatchLabel]; ok && filter != "" {
			return value == filter
		}
	}
	return true
}

// orphaned reports whether the Machine was made for a ScheduledMachine that is gone.
func (s *scope) orphaned() bool {
	uid := types.UID("")
	if s.scheduled != nil {
		uid = s.scheduled.UID
	}
	return children.Orphaned(s.machine, uid)
}

// turn is the name under which the Machine waits for its turn: its ScheduledMachine's, or else its
// own.
func (s *scope) turn() types.NamespacedName {
	if s.orphaned() {
		return roster.Orphan(client.ObjectKeyFromObject(s.machine))
	}
	return client.ObjectKeyFromObject(s.scheduled)
}

// facts is the border between Kubernetes and the decision.
func (s *scope) facts(now time.Time) facts {
	m := s.machine
	f := facts{
		Deleting:       !m.DeletionTimestamp.IsZero(),
		Drained:        m.Status.Deletion != nil && !m.Status.Deletion.WaitForPreTerminateHookStartTime.IsZero(),
		ClusterLeaving: s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero(),
		NoNode:         !m.Status.NodeRef.IsDefined(),
		Trigger:        s.trigger(now),
		Asked:          len(s.hooks) + len(s.steps),
	}
	_, f.PreDrain = m.Annotations[v1alpha1.PreDrainHookAnnotation]
	_, f.PreTerminate = m.Annotations[v1alpha1.PreTerminateHookAnnotation]
	if ready := conditions.Get(m, clusterv1.MachineNodeReadyCondition); ready != nil {
		f.Unreachable = ready.Status == metav1.ConditionUnknown
	}
	return f
}

// trigger is why the Machine is being deleted, in the words of extensions.
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

// reason is why the Machine is being deleted. Who wants it at once is not waited for,
// whatever is on record; of one that somebody else deletes there may be nothing yet.
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
	case s.clusterGoes(): // Cluster API deletes its Machines.
		return v1alpha1.ClusterDeleted
	default:
		return v1alpha1.DeletedByOthers
	}
}

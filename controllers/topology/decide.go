// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

// A decision has the writes for the ScheduledMachines of a Cluster. Each list is in the order of names.
type decision struct {
	// create has the desired ScheduledMachines that do not exist in the cache.
	create []*v1alpha1.ScheduledMachine
	// change has the desired ScheduledMachines that differ.
	change []change
	// remove has the ScheduledMachines that are not desired any more.
	remove []*v1alpha1.ScheduledMachine
	// paused has the names of ScheduledMachines that differ, and that a person paused.
	paused []string
	// leaving has the names of ScheduledMachines that are being deleted. If one is desired again, it is created after
	// the deletion.
	leaving []string
}

// A change is the update of one ScheduledMachine.
type change struct{ live, desired *v1alpha1.ScheduledMachine }

// result returns the live object with all desired fields. It preserves the live switches, which the variable does not
// have. A schedule that an emergency reclaim disabled stays disabled until a person enables it. A kill switch stays on.
func (c change) result() *v1alpha1.ScheduledMachine {
	after := c.live.DeepCopy()
	after.Spec = *c.desired.Spec.DeepCopy()
	after.Spec.Schedule.Enabled, after.Spec.KillSwitch = c.live.Spec.Schedule.Enabled, c.live.Spec.KillSwitch
	after.Labels = labels.Merge(after.Labels, c.desired.Labels)
	return after
}

// settled reports whether the object needs no write.
func (c change) settled() bool { return equality.Semantic.DeepEqual(c.live, c.result()) }

// decide compares the variable with the existing ScheduledMachines. An invalid variable changes nothing, because a
// missing machine may be a mistake.
func decide(s *scope) decision {
	var d decision
	if len(s.invalid) > 0 {
		return d
	}
	wanted := map[string]variable.Machine{}
	for _, m := range s.desired {
		wanted[variable.ObjectName(s.cluster.Name, m.Name)] = m
	}
	for _, name := range slices.Sorted(maps.Keys(s.owned)) {
		sm := s.owned[name]
		m, ok := wanted[name]
		delete(wanted, name)
		switch {
		case !sm.DeletionTimestamp.IsZero():
			d.leaving = append(d.leaving, name)
		case ok && (change{sm, desired(name, m, s.cluster)}).settled():
		case annotations.HasPaused(sm):
			d.paused = append(d.paused, name)
		case ok:
			d.change = append(d.change, change{sm, desired(name, m, s.cluster)})
		default:
			d.remove = append(d.remove, sm)
			d.leaving = append(d.leaving, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		d.create = append(d.create, desired(name, wanted[name], s.cluster))
	}
	return d
}

// desired returns a ScheduledMachine as the variable describes it, without the switches.
func desired(name string, m variable.Machine, cluster *clusterv1.Cluster) *v1alpha1.ScheduledMachine {
	sm := &v1alpha1.ScheduledMachine{Spec: withDefaults(m.Spec(cluster.Name))}
	sm.Namespace, sm.Name = cluster.Namespace, name
	sm.Labels = map[string]string{v1alpha1.TopologyOwnedLabel: "", clusterv1.ClusterNameLabel: cluster.Name}
	// The manager of the Cluster also serves its ScheduledMachines.
	if filter, ok := cluster.Labels[clusterv1.WatchLabel]; ok {
		sm.Labels[clusterv1.WatchLabel] = filter
	}
	sm.OwnerReferences = []metav1.OwnerReference{children.ClusterReference(cluster)}
	return sm
}

// withDefaults sets the defaults of the API server, so that an unchanged object compares as equal.
func withDefaults(spec v1alpha1.ScheduledMachineSpec) v1alpha1.ScheduledMachineSpec {
	spec.Schedule.Timezone = cmp.Or(spec.Schedule.Timezone, "UTC")
	spec.Priority = cmp.Or(spec.Priority, new(int32(v1alpha1.DefaultPriority)))
	spec.ResumeAfterReclaim = cmp.Or(spec.ResumeAfterReclaim, v1alpha1.ResumeOnEnable)
	spec.ReclaimHold = cmp.Or(spec.ReclaimHold, reclaim.HoldNone)
	spec.GracefulShutdownTimeout = cmp.Or(spec.GracefulShutdownTimeout, v1alpha1.DefaultTimeout)
	spec.NodeDrainTimeout = cmp.Or(spec.NodeDrainTimeout, v1alpha1.DefaultTimeout)
	return spec
}

// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

// A decision is what to do about the ScheduledMachines of a Cluster, each part in the
// order of names.
type decision struct {
	// create are wanted and not known to exist.
	create []*v1alpha1.ScheduledMachine
	// change are wanted, exist, and are not as they should be.
	change []change
	// remove are no longer wanted.
	remove []*v1alpha1.ScheduledMachine
	// paused are the names of those that are not as they should be, and that a person
	// paused.
	paused []string
	// leaving are the names of those that are on their way out. One of them that is
	// wanted again is made when it is gone.
	leaving []string
}

// A change of a ScheduledMachine.
type change struct{ live, desired *v1alpha1.ScheduledMachine }

// result is the live one with everything that is desired. Its switches are not the
// variable's: an emergency reclaim turns the schedule off, and it stays off until
// somebody turns it on; a person's kill switch stays on.
func (c change) result() *v1alpha1.ScheduledMachine {
	after := c.live.DeepCopy()
	after.Spec = *c.desired.Spec.DeepCopy()
	after.Spec.Schedule.Enabled, after.Spec.KillSwitch = c.live.Spec.Schedule.Enabled, c.live.Spec.KillSwitch
	if after.Labels == nil {
		after.Labels = map[string]string{}
	}
	maps.Copy(after.Labels, c.desired.Labels)
	return after
}

// settled reports whether nothing is to be written.
func (c change) settled() bool { return equality.Semantic.DeepEqual(c.live, c.result()) }

// decide compares what is asked for with what there is. A variable that cannot be
// used changes nothing: what it leaves out may be a slip.
func decide(s *scope) decision {
	var d decision
	if len(s.invalid) > 0 {
		return d
	}
	wanted := map[string]variable.Machine{}
	for _, m := range s.asked {
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

// desired is a ScheduledMachine as the variable wants it, without the switches.
func desired(name string, m variable.Machine, cluster *clusterv1.Cluster) *v1alpha1.ScheduledMachine {
	sm := &v1alpha1.ScheduledMachine{Spec: withDefaults(m.Spec(cluster.Name))}
	sm.Namespace, sm.Name = cluster.Namespace, name
	sm.Labels = map[string]string{v1alpha1.TopologyOwnedLabel: "", clusterv1.ClusterNameLabel: cluster.Name}
	// A ScheduledMachine is the business of the manager that its Cluster is of.
	if filter, ok := cluster.Labels[clusterv1.WatchLabel]; ok {
		sm.Labels[clusterv1.WatchLabel] = filter
	}
	// Not the controller, as of every ScheduledMachine: clusterctl move follows it, and
	// the garbage collector.
	sm.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
	}}
	return sm
}

// withDefaults fills in what the API server does, so that what is as it should be
// compares as equal.
func withDefaults(spec v1alpha1.ScheduledMachineSpec) v1alpha1.ScheduledMachineSpec {
	if spec.Schedule.Timezone == "" {
		spec.Schedule.Timezone = "UTC"
	}
	if spec.Priority == nil {
		spec.Priority = new(int32(v1alpha1.DefaultPriority))
	}
	if spec.ResumeAfterReclaim == "" {
		spec.ResumeAfterReclaim = v1alpha1.ResumeOnEnable
	}
	for _, timeout := range []*string{&spec.GracefulShutdownTimeout, &spec.NodeDrainTimeout} {
		if *timeout == "" {
			*timeout = v1alpha1.DefaultTimeout
		}
	}
	return spec
}

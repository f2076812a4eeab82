// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"slices"
	"strings"
	"time"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bring is how long a machine takes to become ready. step is how long Cluster API takes to process a change.
const (
	bring = 5 * time.Second
	step  = time.Second
)

// clusterAPI simulates Cluster API: it reacts to each change of a Machine and of a Cluster.
func (w *world) clusterAPI(c change) {
	switch c.id.kind {
	case "Machine":
		if c.to == nil || c.from == nil {
			w.after(bring, func() { w.bringUp(c.id) })
		}
		if c.to != nil && !c.to.GetDeletionTimestamp().IsZero() {
			w.after(step, func() { w.takeDown(c.id) })
		}
	case infrastructureKind:
		if c.to == nil { // An object of a removed machine.
			i := id{"Machine", c.id.namespace, strings.TrimSuffix(c.id.name, "-infra") + "-machine"}
			w.after(step, func() { w.takeDown(i) })
		}
	case "Cluster":
		for _, m := range w.api.list("Machine") {
			if !m.GetDeletionTimestamp().IsZero() {
				w.after(step, func() { w.takeDown(idOf(m)) })
			}
		}
	}
}

// bringUp makes a machine ready.
func (w *world) bringUp(i id) {
	obj, exists := w.api.objects.get(i)
	if !exists || obj.(*clusterv1.Machine).Status.NodeRef.IsDefined() || !obj.GetDeletionTimestamp().IsZero() {
		return
	}
	of := strings.TrimSuffix(i.name, "-machine")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: of + "-node", Annotations: map[string]string{
		clusterv1.MachineAnnotation: i.name, clusterv1.ClusterNamespaceAnnotation: i.namespace,
	}}}
	node.Spec.ProviderID = "storm://" + of
	if _, err := w.api.create(node); err != nil {
		w.after(bring, func() { w.bringUp(i) }) // The earlier machine still exists.
		return
	}
	ref := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: i.name, UID: obj.GetUID(), Controller: new(true)}
	for _, part := range []id{{bootstrapKind, i.namespace, of + "-bootstrap"}, {infrastructureKind, i.namespace, of + "-infra"}} {
		w.api.change(part, func(obj client.Object) { obj.SetOwnerReferences(append(obj.GetOwnerReferences(), ref)) })
	}
	w.api.change(i, func(obj client.Object) {
		m := obj.(*clusterv1.Machine)
		m.Finalizers = append(m.Finalizers, clusterv1.MachineFinalizer)
		m.Spec.ProviderID, m.Status.NodeRef.Name = node.Spec.ProviderID, node.Name
		conditions.Set(m, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ReadyReason, LastTransitionTime: metav1.NewTime(w.now)})
	})
}

// takeDown advances the deletion of a Machine: hooks, drain, hooks, and then its objects.
func (w *world) takeDown(i id) {
	obj, exists := w.api.objects.get(i)
	if !exists || obj.GetDeletionTimestamp().IsZero() {
		return
	}
	m, cluster := obj.(*clusterv1.Machine), w.cluster()
	if cluster != nil && cluster.DeletionTimestamp.IsZero() && hooked(m, clusterv1.PreDrainDeleteHookAnnotationPrefix) {
		return
	}
	_, skips := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
	of := strings.TrimSuffix(i.name, "-machine")
	_, has := w.api.objects.get(id{infrastructureKind, i.namespace, of + "-infra"})
	if m.Status.Deletion == nil {
		w.api.change(i, func(obj client.Object) {
			obj.(*clusterv1.Machine).Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: metav1.NewTime(w.now)}
		})
		w.after(w.drain, func() { w.takeDown(i) })
		return
	}
	if has && !skips && w.now.Before(m.Status.Deletion.NodeDrainStartTime.Add(w.drain)) {
		return
	}
	for _, part := range []id{{infrastructureKind, i.namespace, of + "-infra"}, {bootstrapKind, i.namespace, of + "-bootstrap"}, {"Node", "", of + "-node"}} {
		_ = w.api.delete(part, "")
	}
	w.api.change(i, func(obj client.Object) { obj.SetFinalizers(nil) })
}

func hooked(m *clusterv1.Machine, prefix string) bool {
	for key := range m.Annotations {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// garbageCollector deletes in the foreground the objects that a ScheduledMachine owns, unless they have another owner.
func (w *world) garbageCollector(c change) {
	if c.to == nil || c.id.kind != "ScheduledMachine" || c.to.GetDeletionTimestamp().IsZero() ||
		!slices.Contains(c.to.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		return
	}
	w.after(0, func() {
		names := children.NamesOf(c.id.name)
		for _, i := range []id{{"Machine", namespace, names.Machine}, {bootstrapKind, namespace, names.Bootstrap}, {infrastructureKind, namespace, names.Infrastructure}} {
			obj, exists := w.api.objects.get(i)
			if !exists {
				continue
			}
			others := slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(ref metav1.OwnerReference) bool { return ref.UID == c.to.GetUID() })
			if len(others) == 0 {
				_ = w.api.delete(i, "")
			} else {
				w.api.change(i, func(obj client.Object) { obj.SetOwnerReferences(others) })
			}
		}
		w.api.change(c.id, func(obj client.Object) {
			obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
		})
	})
}

// all, half and few are the indexes of some of the ScheduledMachines.
func (w *world) all() []int { return w.from(0, w.size) }

func (w *world) half() []int { return w.from(0, w.size/2) }

func (*world) from(a, b int) (places []int) {
	for i := a; i < b; i++ {
		places = append(places, i)
	}
	return places
}

func scheduled(i int) id { return id{"ScheduledMachine", namespace, name(i)} }

func machine(i int) id { return id{"Machine", namespace, children.NamesOf(name(i)).Machine} }

func (w *world) machine(i int) *clusterv1.Machine {
	m, _ := w.api.get(machine(i)).(*clusterv1.Machine)
	return m
}

func (w *world) cluster() *clusterv1.Cluster {
	c, _ := w.api.get(id{"Cluster", namespace, lab}).(*clusterv1.Cluster)
	return c
}

// edit edits ScheduledMachines as a person.
func (w *world) edit(places []int, change func(*v1alpha1.ScheduledMachine)) {
	for _, i := range places {
		w.api.change(scheduled(i), func(obj client.Object) { change(obj.(*v1alpha1.ScheduledMachine)) })
	}
}

func (w *world) editCluster(change func(*clusterv1.Cluster)) {
	w.api.change(id{"Cluster", namespace, lab}, func(obj client.Object) { change(obj.(*clusterv1.Cluster)) })
}

// The edits of the storms.
func unwanted(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20-22"} }
func wanted(sm *v1alpha1.ScheduledMachine)   { sm.Spec.Schedule.HoursOfDay = []string{"9-16"} }
func killed(sm *v1alpha1.ScheduledMachine)   { sm.Spec.KillSwitch = true }

// remove deletes objects as a person.
func (w *world) remove(places []int, of func(int) id) {
	for _, i := range places {
		_ = w.api.delete(of(i), "")
	}
}

// bereave removes ScheduledMachines as after a forced removal of their finalizers, and deletes their Machines.
func (w *world) bereave(places []int) {
	for _, i := range places {
		w.api.change(scheduled(i), func(obj client.Object) { obj.SetFinalizers(nil) })
	}
	w.remove(places, scheduled)
	w.remove(places, machine)
}

// removeInForeground deletes ScheduledMachines, and the objects that they own, in the foreground.
func (w *world) removeInForeground(places []int) {
	for _, i := range places {
		w.api.change(scheduled(i), func(obj client.Object) {
			obj.SetFinalizers(append(obj.GetFinalizers(), metav1.FinalizerDeleteDependents))
		})
		_ = w.api.delete(scheduled(i), "")
	}
}

// requestMachines makes owners' requests for machines, as their agents do.
func (w *world) requestMachines(places []int) {
	for _, i := range places {
		w.owners[name(i)] = w.now
		w.api.change(id{"Node", "", name(i) + "-node"}, func(obj client.Object) {
			obj.SetAnnotations(map[string]string{
				reclaimapi.RequestedAnnotation: "true", reclaimapi.ReasonAnnotation: "process-match: java",
				reclaimapi.RequestedAtAnnotation: w.now.Format(time.RFC3339),
				clusterv1.MachineAnnotation:      name(i) + "-machine", clusterv1.ClusterNamespaceAnnotation: namespace,
			})
		})
	}
}

// flip turns kill switches on.
func (w *world) flip(places []int) {
	for _, i := range places {
		w.kills[name(i)] = w.now
	}
	w.edit(places, killed)
}

// restart kills the managers, and starts one.
func (w *world) restart() {
	w.Helper()
	for len(w.managers) > 0 {
		w.kill(w.managers[0])
	}
	w.start()
}

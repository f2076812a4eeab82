// SPDX-License-Identifier: Apache-2.0

// Package wake answers one question: which ScheduledMachines does an event concern, and
// when is a failed one tried again? It reads from the manager's cache only, and trusts nothing that a Node
// says of itself.
package wake

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// OfChild returns the ScheduledMachine of a child.
func OfChild(_ context.Context, child client.Object) []ctrl.Request {
	name := children.ParentOf(child)
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: child.GetNamespace(), Name: name}}}
}

// A Mapper finds ScheduledMachines in a cache.
type Mapper struct {
	// Reader is the cache. Machines are indexed by Node as Cluster API does.
	Reader client.Reader
	// ClusterIndex is the index of ScheduledMachines by the name of their Cluster.
	ClusterIndex string
}

// OfCluster returns the ScheduledMachines of a Cluster.
func (m Mapper) OfCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return m.OfClusterIf(ctx, client.ObjectKeyFromObject(cluster), func(*v1alpha1.ScheduledMachine) bool { return true })
}

// OfClusterIf returns the wanted among the ScheduledMachines of a Cluster.
func (m Mapper) OfClusterIf(ctx context.Context, cluster client.ObjectKey, wanted func(*v1alpha1.ScheduledMachine) bool) []ctrl.Request {
	list := &v1alpha1.ScheduledMachineList{}
	if err := m.Reader.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingFields{m.ClusterIndex: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines of Cluster")
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// NodeIndex is the index of ScheduledMachines by the Node in their status.
const NodeIndex = "status.nodeRef.name"

// OfHost returns the ScheduledMachine of a Machine, and those of the others that name the same
// Node: they may be believed when this one does not any more.
func (m Mapper) OfHost(ctx context.Context, machine client.Object) []ctrl.Request {
	found := OfChild(ctx, machine)
	self, ok := machine.(*clusterv1.Machine)
	if !ok {
		return found
	}
	for field, value := range map[string]string{
		index.MachineNodeNameField: self.Status.NodeRef.Name, index.MachineProviderIDField: self.Spec.ProviderID,
	} {
		if value == "" {
			continue
		}
		list := &clusterv1.MachineList{}
		if err := m.Reader.List(ctx, list, client.InNamespace(self.Namespace), client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing Machines of the same host", "Machine", self.Name)
			continue
		}
		for i := range list.Items {
			found = append(found, OfChild(ctx, &list.Items[i])...)
		}
	}
	return found
}

// OfNode returns the ScheduledMachines whose Machines have this Node of a workload
// cluster, or had it when it was believed: more than one where several name one host.
func (m Mapper) OfNode(ctx context.Context, cluster client.ObjectKey, node client.Object) []ctrl.Request {
	list := &clusterv1.MachineList{}
	if err := m.Reader.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingFields{index.MachineNodeNameField: node.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Machines of Node", "Node", node.GetName())
		return nil
	}
	var found []ctrl.Request
	for i := range list.Items {
		if machine := &list.Items[i]; machine.Spec.ClusterName == cluster.Name {
			found = append(found, OfChild(ctx, machine)...)
		}
	}
	return m.believing(ctx, cluster, node.GetName(), found)
}

// believing adds the ScheduledMachines of a Cluster that have the Node in their status.
func (m Mapper) believing(ctx context.Context, cluster client.ObjectKey, node string, found []ctrl.Request) []ctrl.Request {
	list := &v1alpha1.ScheduledMachineList{}
	if err := m.Reader.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingFields{NodeIndex: node}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines of Node", "Node", node)
		return found
	}
	for i := range list.Items {
		sm := &list.Items[i]
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)}
		if sm.Spec.ClusterName == cluster.Name && !slices.Contains(found, request) {
			found = append(found, request)
		}
	}
	return found
}

// Changes lets an update through if it changes what is read. Most updates of a Node are
// heartbeats.
func Changes(read func(client.Object) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(read(e.ObjectOld), read(e.ObjectNew))
	}}
}

// Relabelled lets through objects that got other labels: a selector may now mean
// them, or another manager.
func Relabelled() predicate.Predicate {
	return predicate.And(predicate.LabelChangedPredicate{}, predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	})
}

// ClusterLeaves lets through the beginning of a Cluster's deletion, after which nobody
// waits, and its end.
func ClusterLeaves() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

// NodeOfMachine lets through the changes of a Machine after which it has another
// Node, none, or one that is about to go, or another ID of its provider.
func NodeOfMachine() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.Machine)
		after, ok2 := e.ObjectNew.(*clusterv1.Machine)
		return !ok || !ok2 || before.UID != after.UID || before.Status.NodeRef != after.Status.NodeRef || before.Spec.ProviderID != after.Spec.ProviderID ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			children.ParentOf(before) != children.ParentOf(after)
	}}
}

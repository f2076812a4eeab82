// SPDX-License-Identifier: Apache-2.0

// Package wake maps events to requests for ScheduledMachines, and controls when failed reconciles are retried.
// It also has the predicates that several controllers share. It reads only from the manager's cache, and
// accepts no mapping that only a Node reports.
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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// OfChild returns the request for the ScheduledMachine of a child.
func OfChild(_ context.Context, child client.Object) []ctrl.Request {
	name := children.ParentOf(child)
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: child.GetNamespace(), Name: name}}}
}

// ClusterOf returns the request for the Cluster of a ScheduledMachine.
func ClusterOf(_ context.Context, obj client.Object) []ctrl.Request {
	sm, ok := obj.(*v1alpha1.ScheduledMachine)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: workload.ClusterKey(sm)}}
}

// A Mapper maps objects to ScheduledMachines by a cache.
type Mapper struct {
	// Reader is the cache. It must have Cluster API's indexes of Machines.
	Reader client.Reader
}

// OfCluster returns requests for the ScheduledMachines of a Cluster.
func (m Mapper) OfCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return m.OfClusterIf(ctx, client.ObjectKeyFromObject(cluster), func(*v1alpha1.ScheduledMachine) bool { return true })
}

// OfClusterIf returns requests for the ScheduledMachines of a Cluster for which wanted returns true.
func (m Mapper) OfClusterIf(ctx context.Context, cluster client.ObjectKey, wanted func(*v1alpha1.ScheduledMachine) bool) []ctrl.Request {
	list := &v1alpha1.ScheduledMachineList{}
	if err := m.Reader.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingFields{ClusterIndex: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines of Cluster")
		return nil
	}
	return Requests(list.Items, wanted)
}

// Requests returns requests for the objects for which wanted returns true.
func Requests[T any, P interface {
	*T
	client.Object
}](objects []T, wanted func(P) bool) (requests []ctrl.Request) {
	for i := range objects {
		if obj := P(&objects[i]); wanted(obj) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
	}
	return requests
}

// The indexes of ScheduledMachines: by the name of their Cluster, and by the Node in their status.
const (
	ClusterIndex = "spec.clusterName"
	NodeIndex    = "status.nodeRef.name"
)

// OfHost returns requests for the ScheduledMachine of a Machine, and for those whose Machines report the same
// Node or provider ID. Their reports may be accepted after this Machine changes its own.
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

// OfNode returns requests for the ScheduledMachines whose Machines report this Node of a workload cluster, or
// whose status has it. There are several if several Machines report one host.
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
	return m.addByStatus(ctx, cluster, node.GetName(), found)
}

// addByStatus adds the ScheduledMachines of a Cluster that have the Node in their status.
func (m Mapper) addByStatus(ctx context.Context, cluster client.ObjectKey, node string, found []ctrl.Request) []ctrl.Request {
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

// Changes selects updates that change the result of read. Most updates of a Node are heartbeats.
func Changes[T client.Object](read func(T) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, ok2 := e.ObjectNew.(T)
		return !ok || !ok2 || !equality.Semantic.DeepEqual(read(before), read(after))
	}}
}

// Relabelled selects updates that change labels. A selector or another manager may now apply.
func Relabelled() predicate.Predicate {
	return predicate.And(predicate.LabelChangedPredicate{}, predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

// ClusterLeaves selects the start of a Cluster's deletion and its end.
func ClusterLeaves() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

// NodeOfMachine selects updates of a Machine that change its Node, its provider ID, its deletion or its
// ScheduledMachine.
func NodeOfMachine() predicate.Predicate {
	return Changes(func(m *clusterv1.Machine) any {
		return []any{m.UID, m.Status.NodeRef, m.Spec.ProviderID, m.DeletionTimestamp.IsZero(), children.ParentOf(m)}
	})
}

// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// nodesWatch is the name of the watch on Nodes.
const nodesWatch = "nodeattachment-nodes"

// SetupWithManager adds the controller to mgr. Machines are indexed by Node as Cluster API does.
func (r *NodeReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	opts.RateLimiter = wake.DepartureBackoff()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("nodeattachment").
		Watches(&expv1.NodeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment)).
		Watches(&expv1.LoadBalancer{}, handler.EnqueueRequestsFromMapFunc(r.ofBalancer), builder.WithPredicates(predicate.Or(createdOrDeleted(), wake.Changes(servedDaemonSets)))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine), builder.WithPredicates(wake.Changes(machineFields))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(clusterChanges(mgr, "nodeattachment"))).
		WatchesRawSource(r.ClusterCache.GetClusterSource("nodeattachment", r.ofCluster)).
		WatchesRawSource(r.Pods.Woken()).
		WithOptions(opts).
		Build(telemetry.Counted("nodeattachment", r))
	if err != nil {
		return fmt.Errorf("building nodeattachment controller: %w", err)
	}
	r.nodes = workload.Watch{
		Name: nodesWatch, Kind: &corev1.Node{}, Cache: r.ClusterCache, Controller: c, Map: r.ofNode, Predicate: wake.Changes(nodeFields),
	}
	r.podCache = r.newPodCache(c)
	return nil
}

// SetupWithManager adds the controller to mgr.
func (r *BalancerReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	opts.RateLimiter = wake.DepartureBackoff()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("loadbalancer").
		For(&expv1.LoadBalancer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&expv1.NodeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.balancers), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, statusLost()))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.balancers), builder.WithPredicates(clusterChanges(mgr, "loadbalancer"))).
		WithOptions(opts).
		Complete(telemetry.Counted("loadbalancer", r))
	if err != nil {
		return fmt.Errorf("building loadbalancer controller: %w", err)
	}
	return nil
}

// Woken returns the event sources that enqueue Machines. A changed NodeAttachment enqueues the leaving Machine of its
// Node. A changed LoadBalancer enqueues all leaving Machines of its Cluster.
func (s *Step) Woken(mgr ctrl.Manager) []source.Source {
	return []source.Source{
		source.Kind(mgr.GetCache(), client.Object(&expv1.NodeAttachment{}), handler.EnqueueRequestsFromMapFunc(s.waiting)),
		source.Kind(mgr.GetCache(), client.Object(&expv1.LoadBalancer{}), handler.EnqueueRequestsFromMapFunc(s.waiting),
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, createdOrDeleted())),
	}
}

// waiting returns the Machines that are being deleted and belong to the Node of a NodeAttachment, or to the Cluster of
// a LoadBalancer.
func (s *Step) waiting(ctx context.Context, obj client.Object) []ctrl.Request {
	cluster, of := "", []client.ListOption{client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy}
	switch o := obj.(type) {
	case *expv1.NodeAttachment:
		cluster, of = o.Spec.ClusterName, append(of, client.MatchingFields{index.MachineNodeNameField: o.Spec.NodeName})
	case *expv1.LoadBalancer:
		cluster, of = o.Spec.ClusterName, append(of, client.MatchingLabels{clusterv1.ClusterNameLabel: o.Spec.ClusterName})
	}
	machines := &clusterv1.MachineList{}
	if err := s.Reader.List(ctx, machines, of...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Machines that leave", "Cluster", cluster)
		return nil
	}
	return wake.Requests(machines.Items, func(m *clusterv1.Machine) bool { return m.Spec.ClusterName == cluster && !m.DeletionTimestamp.IsZero() })
}

// ofAttachment returns the Node and the Cluster, which may have a roll.
func ofAttachment(_ context.Context, obj client.Object) []ctrl.Request {
	a, ok := obj.(*expv1.NodeAttachment)
	if !ok {
		return nil
	}
	cluster := client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.ClusterName}
	return []ctrl.Request{requestFor(cluster, a.Spec.NodeName), requestFor(cluster, "")}
}

// ofMachine returns the Node of a Machine, and the Nodes whose NodeAttachment records one of its addresses.
func (r *NodeReconciler) ofMachine(ctx context.Context, obj client.Object) []ctrl.Request {
	m, ok := obj.(*clusterv1.Machine)
	if !ok || !m.Status.NodeRef.IsDefined() {
		return nil
	}
	return r.requestsForAddresses(ctx, clusterOf(m), m.Status.NodeRef.Name, machineAddresses(m))
}

// ofBalancer returns the Cluster and all its Nodes. The request for the Cluster starts the watch on its Nodes.
func (r *NodeReconciler) ofBalancer(ctx context.Context, obj client.Object) []ctrl.Request {
	lb, ok := obj.(*expv1.LoadBalancer)
	if !ok {
		return nil
	}
	return r.all(ctx, client.ObjectKey{Namespace: lb.Namespace, Name: lb.Spec.ClusterName})
}

func (r *NodeReconciler) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.all(ctx, client.ObjectKeyFromObject(cluster))
}

// all returns the Cluster, its Nodes, and the Nodes of its NodeAttachments.
func (r *NodeReconciler) all(ctx context.Context, cluster client.ObjectKey) []ctrl.Request {
	found := append(r.attached(ctx, cluster, func(*expv1.NodeAttachment) bool { return true }), requestFor(cluster, ""))
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if err != nil {
		return found // A new connection to the workload cluster enqueues the Nodes.
	}
	nodes := &corev1.NodeList{}
	if err := reader.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Nodes")
	}
	for i := range nodes.Items {
		found = append(found, requestFor(cluster, nodes.Items[i].Name))
	}
	return found
}

// ofNode returns the Node, and the Nodes whose NodeAttachment records one of its addresses.
func (r *NodeReconciler) ofNode(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return nil
	}
	return r.requestsForAddresses(ctx, cluster, node.Name, nodeAddresses(node))
}

// requestsForAddresses returns the Node, and all other Nodes whose NodeAttachment records one of the addresses. The
// Node may be the same machine under a new name.
func (r *NodeReconciler) requestsForAddresses(ctx context.Context, cluster client.ObjectKey, node string, addresses []string) []ctrl.Request {
	own := sets.New(addresses...)
	had := func(a *expv1.NodeAttachment) bool { return a.Spec.NodeName != node && own.HasAny(a.Spec.Addresses...) }
	return append(r.attached(ctx, cluster, had), requestFor(cluster, node))
}

// attached returns the Nodes of a Cluster whose NodeAttachment satisfies wanted.
func (r *NodeReconciler) attached(ctx context.Context, cluster client.ObjectKey, wanted func(*expv1.NodeAttachment) bool) (found []ctrl.Request) {
	all, err := attachmentsOf(ctx, r.Reader, cluster)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Finding Nodes of a Cluster")
	}
	for i := range all {
		if wanted(&all[i]) {
			found = append(found, requestFor(cluster, all[i].Spec.NodeName))
		}
	}
	return found
}

// balancers returns the LoadBalancers of the Cluster, or of the Cluster of a NodeAttachment.
func (r *BalancerReconciler) balancers(ctx context.Context, obj client.Object) []ctrl.Request {
	cluster := obj.GetName()
	if a, ok := obj.(*expv1.NodeAttachment); ok {
		cluster = a.Spec.ClusterName
	}
	list := &expv1.LoadBalancerList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing LoadBalancers")
	}
	return wake.Requests(list.Items, func(lb *expv1.LoadBalancer) bool { return lb.Spec.ClusterName == cluster })
}

// clusterChanges passes changes of a Cluster that decide whether 5-Spot may detach its Nodes.
func clusterChanges(mgr ctrl.Manager, controller string) predicate.Predicate {
	log := mgr.GetLogger().WithValues("controller", controller)
	return predicate.Or(predicates.ClusterPausedTransitions(mgr.GetScheme(), log), wake.ClusterLeaves(), wake.Relabelled())
}

// createdOrDeleted passes the creation, the deletion, and the start of the deletion of a LoadBalancer.
func createdOrDeleted() predicate.Predicate {
	return wake.Changes(func(lb client.Object) any { return lb.GetDeletionTimestamp().IsZero() })
}

// servedDaemonSets returns the fields of a LoadBalancer that select the pods to watch.
func servedDaemonSets(lb *expv1.LoadBalancer) any { return lb.Spec.DaemonSets }

// statusLost passes a NodeAttachment of a detached Node whose status is empty, as after clusterctl move.
func statusLost() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, ok := e.ObjectNew.(*expv1.NodeAttachment)
		return ok && len(a.Status.LoadBalancers) == 0 && a.Spec.Trigger != ""
	}}
}

// machineFields returns the fields of a Machine that decide whether its Node must be detached, and which Node it is.
func machineFields(m *clusterv1.Machine) any {
	return []any{
		m.UID, m.Status.NodeRef, m.Spec.ProviderID, machineAddresses(m), m.DeletionTimestamp.IsZero(),
		metav1.HasAnnotation(m.ObjectMeta, v1alpha1.PreDrainHookAnnotation), m.Annotations[v1alpha1.DepartureAnnotation],
	}
}

// nodeFields returns the fields of a Node that a decision depends on.
func nodeFields(node *corev1.Node) any {
	return []any{nodeFacts(node), node.Spec.ProviderID, nodeAddresses(node), ofControlPlane(node)}
}

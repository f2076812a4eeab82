// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// firstRetry and longestRetry bound the back-off of a reclaim that fails. An owner
// who has waited for the end of an outage does not wait for a back-off after it.
const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = time.Second
)

// SetupWithManager adds the controller to mgr. clusterIndex is the index of
// ScheduledMachines by the name of their Cluster; Machines are indexed by Node as
// Cluster API does. It uses controller-runtime's own builder: Cluster API's
// reconciles an object once a second at most.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter, clusterIndex string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "reclaim")
	mapper := mapper{reader: r.Reader, clusterIndex: clusterIndex}
	r.watchFilter = watchFilter
	opts.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, longestRetry)
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("reclaim").
		For(&v1alpha1.ScheduledMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter),
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapper.ofCluster),
			builder.WithPredicates(predicates.ClusterPausedTransitions(mgr.GetScheme(), log))).
		WatchesRawSource(r.ClusterCache.GetClusterSource("reclaim", mapper.ofCluster)).
		WithOptions(opts).
		Build(r)
	if err != nil {
		return fmt.Errorf("building reclaim controller: %w", err)
	}
	r.nodes = clusterNodes{r.ClusterCache, c, mapper}
	return registerMetrics()
}

// clusterNodes watches Nodes through the ClusterCache.
type clusterNodes struct {
	cache      clustercache.ClusterCache
	controller controller.Controller
	mapper     mapper
}

func (n clusterNodes) watch(ctx context.Context, cluster client.ObjectKey) error {
	return n.cache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    "reclaim-nodes",
		Watcher: n.controller,
		Kind:    &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, node client.Object) []ctrl.Request {
			return n.mapper.ofNode(ctx, cluster, node)
		}),
		Predicates: []predicate.TypedPredicate[client.Object]{
			predicate.NewPredicateFuncs(func(o client.Object) bool { return reclaimapi.Requested(o.GetAnnotations()) }),
		},
	}))
}

// ofMachine returns the ScheduledMachine of a Machine.
func ofMachine(_ context.Context, machine client.Object) []ctrl.Request {
	name := children.ParentOf(machine)
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.GetNamespace(), Name: name}}}
}

// mapper finds the ScheduledMachines that an event concerns, in the manager's cache.
type mapper struct {
	reader       client.Reader
	clusterIndex string
}

func (m mapper) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return m.requests(ctx, client.ObjectKeyFromObject(cluster), func(*v1alpha1.ScheduledMachine) bool { return true })
}

// ofNode trusts nothing that the Node says of itself: its Machine is found from
// the management cluster's side. A Node whose Machine is gone may still carry a
// request that has been served.
func (m mapper) ofNode(ctx context.Context, cluster client.ObjectKey, node client.Object) []ctrl.Request {
	list := &clusterv1.MachineList{}
	if err := m.reader.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingFields{index.MachineNodeNameField: node.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Machines of Node", "Node", node.GetName())
		return nil
	}
	for i := range list.Items {
		if machine := &list.Items[i]; machine.Spec.ClusterName == cluster.Name {
			if found := ofMachine(ctx, machine); len(found) > 0 {
				return found
			}
		}
	}
	return m.requests(ctx, cluster, func(sm *v1alpha1.ScheduledMachine) bool {
		value, ok := sm.Annotations[v1alpha1.ReclaimedAnnotation]
		return ok && v1alpha1.ParseReclaimRecord(value).Node == node.GetName()
	})
}

func (m mapper) requests(ctx context.Context, cluster client.ObjectKey, wanted func(*v1alpha1.ScheduledMachine) bool) []ctrl.Request {
	list := &v1alpha1.ScheduledMachineList{}
	if err := m.reader.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingFields{m.clusterIndex: cluster.Name}); err != nil {
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

// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// CacheByObject configures the caches of workload clusters to hold only 5-Spot's objects of the kinds that this package
// watches. Kinds of admission policies are missing: without them in the API server, the connection would fail. There
// are few objects of them. guard adds the kinds of the eviction guard.
func CacheByObject(guard bool) map[client.Object]cache.ByObject {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{installed.ManagedByLabel: installed.ManagedBy})}
	ours.Transform = cache.TransformStripManagedFields()
	configMaps := ours
	configMaps.Namespaces = map[string]cache.Config{reclaimapi.Namespace: {}}
	kinds := map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}:          configMaps,
		&corev1.Namespace{}:          ours,
		&corev1.ServiceAccount{}:     ours,
		&rbacv1.ClusterRole{}:        ours,
		&rbacv1.ClusterRoleBinding{}: ours,
		&rbacv1.Role{}:               ours,
		&rbacv1.RoleBinding{}:        ours,
		&appsv1.DaemonSet{}:          ours,
	}
	if guard {
		kinds[&corev1.Secret{}] = ours
		kinds[&corev1.Service{}] = ours
		kinds[&appsv1.Deployment{}] = ours
		kinds[&policyv1.PodDisruptionBudget{}] = ours
	}
	return kinds
}

// SetupWithManager adds the controller to mgr. It uses controller-runtime's builder, like the other controllers.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "installation")
	r.watchFilter = watchFilter
	opts.RateLimiter = wake.Backoff()
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("installation").
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter), changed)).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(wake.ClusterOf), builder.WithPredicates(changed, concerned(len(r.Guard) > 0))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine), builder.WithPredicates(wake.NodeOfMachine())).
		WatchesRawSource(r.ClusterCache.GetClusterSource("installation", itself)).
		WithOptions(opts).
		Build(telemetry.Counted("installation", r))
	if err != nil {
		return fmt.Errorf("building installation controller: %w", err)
	}
	r.controller = c
	return nil
}

func itself(_ context.Context, cluster client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
}

// concerned filters for ScheduledMachines that use the agent, used it, or hold a Node. Without them, a fleet causes no
// reconciles. If the guard is installed, it also passes all creations and deletions, because the first and the last of
// a Cluster matter.
func concerned(guard bool) predicate.Predicate {
	concerns := func(obj client.Object) bool {
		sm, ok := obj.(*v1alpha1.ScheduledMachine)
		return ok && (len(sm.Spec.KillIfCommands) > 0 || sm.BeingReclaimed() || annotations.HasPaused(sm))
	}
	p := predicate.NewPredicateFuncs(func(obj client.Object) bool { return guard || concerns(obj) })
	p.UpdateFunc = func(e event.UpdateEvent) bool { return concerns(e.ObjectOld) || concerns(e.ObjectNew) }
	return p
}

// ofMachine maps a Machine of 5-Spot to its Cluster.
func ofMachine(_ context.Context, obj client.Object) []ctrl.Request {
	machine, ok := obj.(*clusterv1.Machine)
	if !ok || children.ParentOf(machine) == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}}}
}

// requestChanged filters for Nodes on which an owner's request, or a hold of pods, begins or ends.
func requestChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return reclaimapi.Requested(e.ObjectOld.GetAnnotations()) != reclaimapi.Requested(e.ObjectNew.GetAnnotations()) ||
				reportsHeldPods(e.ObjectOld) != reportsHeldPods(e.ObjectNew)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false }, // Garbage collection deletes its ConfigMap.
	}
}

// installedChanged filters for changes of installed objects, without their status. It checks labels and annotations,
// too, because they do not change the generation.
func installedChanged() predicate.Predicate {
	changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return fingerprintOf(e.ObjectOld) != fingerprintOf(e.ObjectNew)
	}}
	return predicate.Or(changed, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// watchNodes watches the Nodes of a workload cluster, and 5-Spot's ConfigMaps in it.
func (r *Reconciler) watchNodes(ctx context.Context, cluster client.ObjectKey) error {
	if err := r.watch(ctx, cluster, "installation-nodes", &corev1.Node{}, requestChanged()); err != nil {
		return err
	}
	return r.watch(ctx, cluster, "installation-configmaps", &corev1.ConfigMap{}, predicate.ResourceVersionChangedPredicate{})
}

// watchInstalled watches the kind of an object. It caches only metadata.
func (r *Reconciler) watchInstalled(ctx context.Context, cluster client.ObjectKey, obj *unstructured.Unstructured) error {
	kind := &metav1.PartialObjectMetadata{}
	kind.SetGroupVersionKind(obj.GroupVersionKind())
	return r.watch(ctx, cluster, "installation-"+obj.GroupVersionKind().GroupKind().String(), kind, installedChanged())
}

// watch enqueues a Cluster at each event of a kind in its workload cluster. It is idempotent.
func (r *Reconciler) watch(ctx context.Context, cluster client.ObjectKey, name string, kind client.Object, p predicate.Predicate) error {
	itself := func(_ context.Context, cluster client.ObjectKey, _ client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: cluster}}
	}
	return workload.Watch{Name: name, Kind: kind, Cache: r.ClusterCache, Controller: r.controller, Map: itself, Predicate: p}.Start(ctx, cluster)
}

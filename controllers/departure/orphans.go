// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// OrphanReconciler counts the orphans of each Cluster: Machines whose ScheduledMachine does not exist any more. 5-Spot
// does not return these machines to their owners. It exports the count as a metric and logs the names. It writes no
// objects, because only a person knows which object is the mistake.
type OrphanReconciler struct {
	// Reader reads Machines, ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// WatchFilter is the value of Cluster API's watch label, empty for all objects.
	WatchFilter string

	// reported has the orphans of the latest log line, a []string by the key of their Cluster.
	reported sync.Map
}

// Reconcile counts the orphans of one Cluster. If a read fails, the metric stays unchanged.
func (r *OrphanReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	orphans, machines, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if machines == 0 {
		orphanMachines.DeleteLabelValues(req.Namespace, req.Name)
	} else {
		orphanMachines.WithLabelValues(req.Namespace, req.Name).Set(float64(len(orphans)))
	}
	r.report(ctx, req.NamespacedName, orphans)
	return ctrl.Result{}, nil
}

// observe returns the names of the orphans, and the number of Machines that 5-Spot made. It returns none for a Cluster
// that another manager serves: exactly one manager counts a Machine. It lists Machines first, so that a
// ScheduledMachine that is created between the two lists makes no false orphan.
func (r *OrphanReconciler) observe(ctx context.Context, key client.ObjectKey) (orphans []string, machines int, err error) {
	if r.WatchFilter != "" {
		cluster := &clusterv1.Cluster{}
		if err := r.Reader.Get(ctx, key, cluster); err != nil || !labels.HasWatchLabel(cluster, r.WatchFilter) {
			return nil, 0, client.IgnoreNotFound(err)
		}
	}
	list, owners := &clusterv1.MachineList{}, &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("listing Machines: %w", err)
	}
	if err := r.Reader.List(ctx, owners, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	uids := map[string]types.UID{}
	for i := range owners.Items {
		uids[owners.Items[i].Name] = owners.Items[i].UID
	}
	for i := range list.Items {
		m := &list.Items[i]
		if m.Spec.ClusterName != key.Name || !children.MadeByUs(m) {
			continue
		}
		machines++
		if m.DeletionTimestamp.IsZero() && children.Orphaned(m, uids[children.ParentOf(m)]) {
			orphans = append(orphans, m.Name)
		}
	}
	slices.Sort(orphans)
	return orphans, machines, nil
}

// report logs the orphans of a Cluster when they change.
func (r *OrphanReconciler) report(ctx context.Context, key client.ObjectKey, orphans []string) {
	v, _ := r.reported.Swap(key, orphans)
	if len(orphans) == 0 {
		r.reported.Delete(key)
	}
	if last, _ := v.([]string); slices.Equal(last, orphans) {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Counted Machines without their ScheduledMachine", "count", len(orphans), "Machines", strings.Join(orphans, " "))
}

// SPDX-License-Identifier: Apache-2.0

// Package topology creates, changes and deletes the ScheduledMachines that the topology of a Cluster lists. It reads
// the variable scheduledMachines of the Cluster. It reports the result in the Cluster's condition
// ScheduledMachinesApplied. It does not set their switches, killSwitch and schedule.enabled (ADR 0017).
package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// staleRetry is the retry delay while the cache is stale. A cache catches up within milliseconds.
const staleRetry = 50 * time.Millisecond

// Reconciler reconciles the ScheduledMachines of Clusters with a topology.
type Reconciler struct {
	// Clock is the time source.
	Clock clock.PassiveClock
	// Reader reads Clusters and ScheduledMachines from the manager's cache.
	Reader client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Actuate carries out all writes, or suppresses them during a pause and a dry run.
	Actuate *actuate.Actuator
	// Recorder records events.
	Recorder events.EventRecorder

	watchFilter string
}

// scope holds what one reconcile reads.
type scope struct {
	cluster *clusterv1.Cluster
	// desired are the machines of the variable; empty without the variable. They are undefined if invalid is not empty.
	// found reports that the variable exists.
	desired []variable.Machine
	found   bool
	invalid field.ErrorList
	// owned are the existing ScheduledMachines of the topology, by name.
	owned map[string]*v1alpha1.ScheduledMachine
}

// Reconcile reconciles the ScheduledMachines of one Cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.observe(ctx, req.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	d := decide(s)
	if len(d.remove) > 0 {
		if known, err := r.newest(ctx, s.cluster); err != nil || !known {
			return ctrl.Result{RequeueAfter: staleRetry}, err
		}
	}
	actErr := r.act(ctx, d)
	if actuate.IsSuppressed(actErr) {
		return ctrl.Result{}, nil // The ScheduledMachines and the condition are unchanged.
	}
	if apierrors.IsConflict(actErr) || errors.Is(actErr, errStaleCache) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	err = actuate.IgnoreSuppressed(r.report(ctx, s, d, actErr))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil // The cache does not have the newer Cluster yet.
	}
	return ctrl.Result{}, errors.Join(actErr, err)
}

// observe returns nil for a Cluster without a topology. It also returns nil if the Cluster is missing, being deleted,
// paused, or of another manager; its ScheduledMachines do not change then.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*scope, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Reader.Get(ctx, key, cluster); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	switch {
	case !cluster.Spec.Topology.IsDefined(), !cluster.DeletionTimestamp.IsZero(), annotations.IsPaused(cluster, cluster),
		!workload.MatchesFilter(r.watchFilter, cluster):
		return nil, nil
	}
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{wake.ClusterIndex: key.Name}); err != nil {
		return nil, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	s := &scope{cluster: cluster, owned: map[string]*v1alpha1.ScheduledMachine{}}
	for i := range list.Items {
		if sm := &list.Items[i]; isOwned(sm) {
			s.owned[sm.Name] = sm
		}
	}
	var value []byte
	if value, s.found = variable.Of(cluster); s.found {
		s.desired, s.invalid = variable.Parse(value, cluster.Name)
	}
	return s, nil
}

// isOwned reports whether a ScheduledMachine belongs to a topology. A person can remove the label to take it over.
func isOwned(sm client.Object) bool {
	_, owned := sm.GetLabels()[v1alpha1.TopologyOwnedLabel]
	return owned
}

// newest reports whether the cached spec of the Cluster is the latest one. A machine that is missing in the list is
// deleted, and a stale list may lack new machines.
func (r *Reconciler) newest(ctx context.Context, cluster *clusterv1.Cluster) (bool, error) {
	live := &clusterv1.Cluster{}
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(cluster), live); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading Cluster: %w", err)
	}
	return live.UID == cluster.UID && live.Generation == cluster.Generation, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package topology answers one question: does a Cluster have exactly the
// ScheduledMachines that its topology asks for? It makes, changes and deletes them.
// What they do is theirs (ADR 0017).
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
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

// soon is for a cache that is late: it catches up within milliseconds.
const soon = 50 * time.Millisecond

// Reconciler keeps the ScheduledMachines of Clusters as their topologies want them.
type Reconciler struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Reader reads Clusters and ScheduledMachines from the manager's cache.
	Reader client.Reader
	// Live reads from the API server.
	Live client.Reader
	// ClusterIndex is the index of ScheduledMachines by the name of their Cluster.
	ClusterIndex string
	// Actuate is the only way to write.
	Actuate *actuate.Actuator
	// Recorder records events.
	Recorder events.EventRecorder

	watchFilter string
}

// scope holds what one reconcile reads.
type scope struct {
	cluster *clusterv1.Cluster
	// asked are the machines of the variable; none without one. They mean nothing if
	// invalid is not empty.
	asked   []variable.Machine
	found   bool
	invalid field.ErrorList
	// owned are the ScheduledMachines that were made from it, by name.
	owned map[string]*v1alpha1.ScheduledMachine
}

// Reconcile brings the ScheduledMachines of one Cluster to where they should be.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.observe(ctx, req.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	d := decide(s)
	if len(d.remove) > 0 {
		if known, err := r.newest(ctx, s.cluster); err != nil || !known {
			return ctrl.Result{RequeueAfter: soon}, err
		}
	}
	actErr := r.act(ctx, d)
	if actuate.IsSuppressed(actErr) {
		return ctrl.Result{}, nil // What the Cluster has is what it had, and says so.
	}
	if apierrors.IsConflict(actErr) || errors.Is(actErr, errLate) {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	err = actuate.IgnoreSuppressed(r.report(ctx, s, d, actErr))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: soon}, nil // A newer Cluster is on its way to the cache.
	}
	return ctrl.Result{}, errors.Join(actErr, err)
}

// observe returns nil for a Cluster without a topology, and for one that is gone,
// going, paused, or another manager's: then what there is stays as it is.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*scope, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Reader.Get(ctx, key, cluster); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	switch {
	case !cluster.Spec.Topology.IsDefined(), !cluster.DeletionTimestamp.IsZero(), annotations.IsPaused(cluster, cluster),
		r.watchFilter != "" && !labels.HasWatchLabel(cluster, r.watchFilter):
		return nil, nil
	}
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{r.ClusterIndex: key.Name}); err != nil {
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
		s.asked, s.invalid = variable.Parse(value, cluster.Name)
	}
	return s, nil
}

// isOwned reports whether a ScheduledMachine was made from a topology, and not taken
// over by a person since.
func isOwned(sm *v1alpha1.ScheduledMachine) bool {
	_, owned := sm.Labels[v1alpha1.TopologyOwnedLabel]
	return owned
}

// newest reports whether the API server has no newer spec of the Cluster. What a list
// leaves out is deleted, and an old list, as a cache that has just been filled may
// show, leaves out what came since.
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

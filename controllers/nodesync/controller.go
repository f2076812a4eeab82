// SPDX-License-Identifier: Apache-2.0

// Package nodesync installs the reclaim agent and the eviction guard in workload clusters. It labels the Nodes of
// ScheduledMachines for the agent's DaemonSet, and writes a ConfigMap with the programs for each Node. It removes all
// of this when no ScheduledMachine needs it any more.
//
// One reconcile is for one Cluster, not for one ScheduledMachine. The installation belongs to the Cluster, and one key
// serializes all writes to it. Obsolete objects often belong to no existing ScheduledMachine, so that nodesync finds
// them in the workload cluster. A finalizer would block deletion while the workload cluster is unreachable. Reads use
// caches, so that a Cluster of many Nodes costs no requests.
package nodesync

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Reconciler reconciles the agent, the guard, Node labels and ConfigMaps of workload clusters.
type Reconciler struct {
	// Clock is the time source, for back-offs only.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// ClusterIndex is the index of ScheduledMachines by the name of their Cluster.
	ClusterIndex string
	// Children reads the Machines of ScheduledMachines.
	Children children.Reader
	// Actuate writes to workload clusters.
	Actuate *actuate.Actuator
	// ClusterCache provides the connections to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// Manifests of the agent, installed in this order. If empty, 5-Spot does not install the agent, and reconciles only
	// Node labels and ConfigMaps.
	Manifests []*unstructured.Unstructured
	// Guard are the manifests of the eviction guard, for each Cluster that has a ScheduledMachine. If empty, 5-Spot
	// does not install the guard.
	Guard []*unstructured.Unstructured
	// Results receives the result of each installation. It may be nil.
	Results *installation.Results

	watches     watcher
	watchFilter string
	memory      memory
	fresh       wake.Freshness
}

// A watcher starts watches in a connected workload cluster. Their events enqueue the Cluster. Both methods are
// idempotent.
type watcher interface {
	nodes(ctx context.Context, cluster client.ObjectKey) error
	installed(ctx context.Context, cluster client.ObjectKey, obj *unstructured.Unstructured) error
}

// Reconcile reconciles one workload cluster. After a conflict it does not hold back other events of the Cluster: a
// rejected write for one Node must not delay other Nodes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return r.fresh.Meet(req, r.Clock.Now(), workload.IgnoreNotConnected(r.reconcile(ctx, req.NamespacedName)))
}

func (r *Reconciler) reconcile(ctx context.Context, key client.ObjectKey) error {
	s, err := r.observe(ctx, key)
	switch {
	case workload.NotConnected(err):
		return err
	case err != nil:
		r.Results.Record(key, runErrors{install: err}.outcome(r.elsewhere()))
		return err
	case s == nil:
		return nil
	}
	done := r.act(ctx, s)
	// If writes were suppressed, the installation is unchanged, and so is its report.
	if err = done.err(); !actuate.IsSuppressed(err) {
		r.publishOutcome(s, done)
		r.remember(s, agent, err)
		if errors.Is(err, errForeign) || errors.Is(err, errContested) {
			r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.ReclaimAgentBlockedEvent, "InstallReclaimAgent", "%s: %s", err, wayOut(err, agent))
		}
	}
	if !actuate.IsSuppressed(done.guard) {
		r.remember(s, guard, done.guard)
		r.reportGuard(s, done.guard)
	}
	return errors.Join(err, done.guard)
}

// remember records whether the next reconcile may rely on the cached fingerprints of a part.
func (r *Reconciler) remember(s *scope, p part, err error) {
	switch {
	case err == nil && s.useOf(p) == unused:
		r.memory.setClean(s.key, p, true)
	case err == nil, workload.NotConnected(err), errors.Is(err, errContested), apierrors.IsConflict(err) && !errors.Is(err, errForeign):
	default:
		r.memory.forgetPart(s.key, p)
	}
}

// reportGuard records an Event for a failure of the guard, once per class. It does not affect the report on the agent,
// because owners are protected without a guard.
func (r *Reconciler) reportGuard(s *scope, err error) {
	if workload.NotConnected(err) {
		return
	}
	f := failureOf(err, guard)
	if r.memory.fails(s.key, f.Class) {
		r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.EvictionGuardNotInstalledEvent, "InstallEvictionGuard", "%s", f.Text)
	}
}

// elsewhere reports that 5-Spot does not install the agent.
func (r *Reconciler) elsewhere() bool { return len(r.Manifests) == 0 }

// publishOutcome publishes the result of the run in Results. A lost connection is no result.
func (r *Reconciler) publishOutcome(s *scope, done runErrors) {
	switch {
	case workload.NotConnected(done.err()):
	case s.use == unused:
		r.Results.Forget(s.key)
	default:
		r.Results.Record(s.key, done.outcome(r.elsewhere()))
	}
}

// act labels Nodes after the agent is installed, and removes the labels before the agent. A failure at one Node does
// not affect other Nodes or the guard.
func (r *Reconciler) act(ctx context.Context, s *scope) runErrors {
	done := runErrors{nodes: map[string]error{}}
	if s.use == used {
		done.install = r.install(ctx, s, agent)
	}
	for _, n := range s.nodes {
		for _, step := range r.steps() {
			if err := step(ctx, s, n); err != nil {
				done.nodes[n.name] = fmt.Errorf("node %s: %w", n.name, err)
			}
		}
	}
	if done.err() == nil && s.use == unused {
		done.uninstall = r.uninstall(ctx, s, agent)
	}
	if s.useOf(guard) == used {
		done.guard = r.install(ctx, s, guard)
	} else {
		done.guard = r.uninstall(ctx, s, guard)
	}
	return done
}

// A nodeStep reconciles one aspect of one Node. It is idempotent, writes only on a difference, and skips a held Node.
type nodeStep func(ctx context.Context, s *scope, n *node) error

// steps returns all steps for a Node.
func (r *Reconciler) steps() []nodeStep { return []nodeStep{r.syncAgent} }

// readCluster returns nil if the Cluster is missing, being deleted, or paused.
func (r *Reconciler) readCluster(ctx context.Context, key client.ObjectKey) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	err := r.Reader.Get(ctx, key, cluster)
	switch {
	case apierrors.IsNotFound(err), err == nil && !cluster.DeletionTimestamp.IsZero():
		r.memory.forget(key)
		r.Results.Forget(key)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Cluster: %w", err)
	case annotations.IsPaused(cluster, cluster):
		return nil, nil
	}
	return cluster, nil
}

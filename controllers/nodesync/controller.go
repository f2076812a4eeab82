// SPDX-License-Identifier: Apache-2.0

// Package nodesync answers one question: does the workload cluster have the reclaim
// agent and the eviction guard, and each of our Nodes its label and ConfigMap, exactly
// where they belong?
//
// One reconcile is for one Cluster, not for one ScheduledMachine. The installation is
// the Cluster's, and one key means one worker for it, in order. What has to go often
// belongs to no ScheduledMachine any more, and is found by looking at the workload
// cluster and not by a finalizer that an unreachable one would hold for ever. What
// is read comes from caches, so a Cluster of many Nodes costs memory reads.
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

// Reconciler keeps workload clusters as their ScheduledMachines want them.
type Reconciler struct {
	// Clock tells the time, for back-offs only.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// ClusterIndex is the index of ScheduledMachines by the name of their Cluster.
	ClusterIndex string
	// Children reads the Machines of ScheduledMachines.
	Children children.Reader
	// Actuate writes to workload clusters.
	Actuate *actuate.Actuator
	// ClusterCache reaches the workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// Manifests are installed in their order. Without any, the installation is
	// somebody else's, and only Nodes and ConfigMaps are kept.
	Manifests []*unstructured.Unstructured
	// Guard are the manifests of the eviction guard, for each Cluster that has a
	// ScheduledMachine. Without any, the installation is somebody else's, or the feature is
	// off.
	Guard []*unstructured.Unstructured
	// Board is told what became of the installation; nil is not.
	Board *installation.Board

	watches     watcher
	watchFilter string
	memory      memory
	fresh       wake.Freshness
}

// A watcher makes objects of a connected workload cluster wake their Cluster. It is
// idempotent.
type watcher interface {
	nodes(ctx context.Context, cluster client.ObjectKey) error
	installed(ctx context.Context, cluster client.ObjectKey, obj *unstructured.Unstructured) error
}

// Reconcile brings one workload cluster to where it should be. A conflict is met as
// everywhere, but that other events of the Cluster are not held back for it: Nodes
// must not wait because somebody refuses a write for another.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return r.fresh.Meet(req, r.Clock.Now(), workload.IgnoreNotConnected(r.reconcile(ctx, req.NamespacedName)))
}

func (r *Reconciler) reconcile(ctx context.Context, key client.ObjectKey) error {
	s, err := r.observe(ctx, key)
	switch {
	case workload.NotConnected(err):
		return err
	case err != nil:
		r.Board.Tell(key, tried{install: err}.outcome(r.elsewhere()))
		return err
	case s == nil:
		return nil
	}
	done := r.act(ctx, s)
	// Where anything is suppressed, what is installed is what was.
	if err = done.err(); !actuate.IsSuppressed(err) {
		r.tell(s, done)
		r.remember(s, agent, err)
		if errors.Is(err, errForeign) || errors.Is(err, errContested) {
			r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.ReclaimAgentBlockedEvent, "InstallReclaimAgent", "%s: %s", err, wayOut(err, agent))
		}
	}
	if !actuate.IsSuppressed(done.guard) {
		r.remember(s, guard, done.guard)
		r.tellOfGuard(s, done.guard)
	}
	return errors.Join(err, done.guard)
}

// remember says how thorough the next look at a part is to be.
func (r *Reconciler) remember(s *scope, p part, err error) {
	switch {
	case err == nil && s.useOf(p) == unused:
		r.memory.setClean(s.key, p, true)
	case err == nil, workload.NotConnected(err), errors.Is(err, errContested), apierrors.IsConflict(err) && !errors.Is(err, errForeign):
	default:
		r.memory.forgetPart(s.key, p)
	}
}

// tellOfGuard tells people of a failure, once. It is none of the agent's: owners are protected
// without a guard.
func (r *Reconciler) tellOfGuard(s *scope, err error) {
	if workload.NotConnected(err) {
		return
	}
	f := failureOf(err, guard)
	if r.memory.fails(s.key, f.Class) {
		r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.EvictionGuardNotInstalledEvent, "InstallEvictionGuard", "%s", f.Text)
	}
}

// elsewhere reports whether somebody else installs the agent.
func (r *Reconciler) elsewhere() bool { return len(r.Manifests) == 0 }

// tell tells others what became of the run. A connection that broke is no outcome.
func (r *Reconciler) tell(s *scope, done tried) {
	switch {
	case workload.NotConnected(done.err()):
	case s.use == unused:
		r.Board.Forget(s.key)
	default:
		r.Board.Tell(s.key, done.outcome(r.elsewhere()))
	}
}

// act opts Nodes in after the agent is installed, and out before it goes. A Node
// that fails does not hold up the others, and the guard nobody.
func (r *Reconciler) act(ctx context.Context, s *scope) tried {
	done := tried{nodes: map[string]error{}}
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

// A nodeStep does one thing for one Node. It is idempotent, writes nothing where
// nothing is to do, and leaves a Node that is held alone.
type nodeStep func(ctx context.Context, s *scope, n *node) error

// steps are all that is done for a Node.
func (r *Reconciler) steps() []nodeStep { return []nodeStep{r.syncAgent} }

// readCluster returns nil for a Cluster that is gone, going, or paused.
func (r *Reconciler) readCluster(ctx context.Context, key client.ObjectKey) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	err := r.Reader.Get(ctx, key, cluster)
	switch {
	case apierrors.IsNotFound(err), err == nil && !cluster.DeletionTimestamp.IsZero():
		r.memory.forget(key)
		r.Board.Forget(key)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Cluster: %w", err)
	case annotations.IsPaused(cluster, cluster):
		return nil, nil
	}
	return cluster, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package installation installs the reclaim agent and the eviction guard in workload clusters, and removes them when no
// ScheduledMachine needs them any more. It also removes the label and the ConfigMap from Nodes that need no agent any
// more. Package node adds both.
//
// One reconcile is for one Cluster, not for one ScheduledMachine. The installation belongs to the Cluster, and one key
// serializes all writes to it. Obsolete objects often belong to no existing ScheduledMachine, so that they are found in
// the workload cluster. A finalizer would block deletion while the workload cluster is unreachable. Reads use caches,
// so that a Cluster of many Nodes costs no requests.
package installation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Reconciler reconciles the agent and the guard of workload clusters.
type Reconciler struct {
	// Clock is the time source, for back-offs and conditions only.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads the Machines of ScheduledMachines.
	Children children.Reader
	// Actuate writes to workload clusters, and the status of Clusters.
	Actuate *actuate.Actuator
	// ClusterCache provides the connections to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// Manifests of the agent, installed in this order. If empty, 5-Spot does not install the agent, and only removes
	// Node labels and ConfigMaps.
	Manifests []*unstructured.Unstructured
	// HoldManifests replace Manifests in a Cluster that has a ScheduledMachine with a reclaimHold. They have the same
	// objects.
	HoldManifests []*unstructured.Unstructured
	// Guard are the manifests of the eviction guard, for each Cluster that has a ScheduledMachine. If empty, 5-Spot
	// does not install the guard.
	Guard []*unstructured.Unstructured

	controller  controller.Controller
	watchFilter string
	states      sync.Map // client.ObjectKey to *clusterState
	fresh       wake.Freshness
}

// Reconcile reconciles one workload cluster. After a conflict it does not hold back other events of the Cluster: a
// rejected write for one Node must not delay other Nodes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	err := r.Reader.Get(ctx, req.NamespacedName, cluster)
	switch {
	case apierrors.IsNotFound(err), err == nil && !cluster.DeletionTimestamp.IsZero():
		r.states.Delete(req.NamespacedName)
		r.fresh.Forget(req)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading Cluster: %w", err)
	case annotations.IsPaused(cluster, cluster):
		return ctrl.Result{}, nil
	}
	read := cluster.ResourceVersion
	if wait := r.fresh.Wait(req, read, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	err = r.reconcile(ctx, cluster)
	r.fresh.Wrote(req, read, cluster.ResourceVersion)
	return r.fresh.ResultOf(req, r.Clock.Now(), workload.IgnoreNotConnected(err))
}

func (r *Reconciler) reconcile(ctx context.Context, cluster *clusterv1.Cluster) error {
	s, err := r.observe(ctx, cluster)
	if s == nil || workload.NotConnected(err) {
		return err
	}
	if err != nil {
		return errors.Join(err, r.report(ctx, s, err))
	}
	return errors.Join(r.reconcileAgent(ctx, s), r.reconcileGuard(ctx, s))
}

// reconcileAgent installs the agent, or removes what is obsolete: labels and ConfigMaps before the agent. A failure at
// one Node does not affect other Nodes. If writes were suppressed, the installation is unchanged, and so is its report.
func (r *Reconciler) reconcileAgent(ctx context.Context, s *scope) error {
	var installErr, removeErr error
	if s.used {
		installErr = r.install(ctx, s, installed.Agent)
	}
	for _, o := range s.obsolete {
		removeErr = errors.Join(removeErr, s.removeAgent(ctx, o))
	}
	if removeErr == nil && s.done(installed.Agent) {
		removeErr = r.uninstall(ctx, s, installed.Agent)
	}
	err := errors.Join(installErr, removeErr)
	if actuate.IsSuppressed(err) {
		return err
	}
	s.recordFailure(installed.Agent, err)
	if errors.Is(err, installed.ErrForeign) || errors.Is(err, installed.ErrContested) {
		r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.ReclaimAgentBlockedEvent, "InstallReclaimAgent", "%s", installed.Text(err, installed.Agent))
	}
	if workload.NotConnected(err) {
		return err
	}
	return errors.Join(err, r.report(ctx, s, installErr))
}

// reconcileGuard installs or removes the guard. It records an Event for a failure, once per class. The failure does not
// affect the report on the agent, because owners are protected without a guard.
func (r *Reconciler) reconcileGuard(ctx context.Context, s *scope) error {
	do := r.uninstall
	if s.guarded {
		do = r.install
	}
	err := do(ctx, s, installed.Guard)
	if actuate.IsSuppressed(err) {
		return err
	}
	s.recordFailure(installed.Guard, err)
	if workload.NotConnected(err) {
		return err
	}
	if text, isNew := s.state.fails(installed.Guard, err); isNew && text != "" {
		r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.EvictionGuardNotInstalledEvent, "InstallEvictionGuard", "%s", text)
	}
	return err
}

// recordFailure records whether the next reconcile may rely on the cached fingerprints of a part.
func (s *scope) recordFailure(p installed.Part, err error) {
	switch {
	case err == nil && s.done(p):
		s.state.forget(p)
		s.state.clean[p] = true
	case err == nil, workload.NotConnected(err), errors.Is(err, installed.ErrContested), apierrors.IsConflict(err) && !errors.Is(err, installed.ErrForeign):
	default:
		s.state.forget(p)
	}
}

// report writes the condition ReclaimAgentInstalled of the Cluster, which package node reads. It is absent if 5-Spot
// does not install the agent.
func (r *Reconciler) report(ctx context.Context, s *scope, err error) error {
	before := s.cluster.DeepCopy()
	c := metav1.Condition{
		Type: v1alpha1.ReclaimAgentInstalledCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.AgentInstalledReason,
		Message: "The reclaim agent is installed in the workload cluster", LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if text, _ := s.state.fails(installed.Agent, err); text != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.AgentNotInstalledReason, clip.Message(text)
	}
	if s.used && len(r.Manifests) > 0 {
		conditions.Set(s.cluster, c)
	} else {
		conditions.Delete(s.cluster, c.Type)
	}
	return r.Actuate.PatchStatus(ctx, s.cluster, before)
}

// SPDX-License-Identifier: Apache-2.0

// Package node keeps the workload Node of a ScheduledMachine as it should be, and reports what it finds there. One
// observation serves all parts:
//
//   - agent gives the Node the label and the ConfigMap for the reclaim agent (ADR 0012).
//   - protection checks that the reclaim agent watches for the owner's programs. It reports OwnerProtected (ADR 0021).
//   - hold copies the agent's report of its hold to the status.
//   - taints applies spec.nodeTaints. It reports NodeTainted and status.appliedNodeTaints, and is their only writer.
//   - departure shows on the Node that its machine leaves, with the conditions of KEP-5683.
//
// The agent and its report come first, and a failure of one part does not stop the others. Status patches have a lock,
// because package scheduledmachine writes the other parts of the status. Status changes trigger neither package, so
// that they cannot trigger each other endlessly.
package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// name is the name of the controller.
const name = "node"

// readTimeout bounds the reads of a workload cluster. Its cache blocks until its first list, and an unresponsive
// cluster must not block a worker.
const readTimeout = 10 * time.Second

// Reconciler reconciles the Nodes of ScheduledMachines.
type Reconciler struct {
	// Clock is the time source.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads Machines.
	Children children.Reader
	// Actuate writes status to the management cluster, and Nodes.
	Actuate *actuate.Actuator
	// ClusterCache provides the connections to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Installs reports that 5-Spot installs the agent. Package installation then reports the result on the Cluster.
	Installs bool
	// Recorder records events.
	Recorder events.EventRecorder
	// Lead is how long before its end a window is announced on the Node; zero disables the announcement.
	Lead time.Duration
	// RolloutFraction is the part of the agents, of a Cluster and of all Clusters, that may get additional programs within
	// departurecap.Window; zero is no limit.
	RolloutFraction departurecap.Fraction

	rollout                 rollout
	nodes, pods, configMaps workload.Watch
	watchFilter             string
	// failures has the latest failure of the agent part by request, to retain its text.
	failures sync.Map
	// fresh is for the version of the ScheduledMachine, the agent and its report. conflicts is for taints and departure
	// conditions: their back-off does not delay the agent.
	fresh, conflicts wake.Freshness
	differing        wake.ReportDelay
	retries          workqueue.TypedRateLimiter[ctrl.Request]
}

// scope holds what one reconcile reads.
type scope struct {
	// now is the time of the observation.
	now       time.Time
	request   ctrl.Request
	scheduled *v1alpha1.ScheduledMachine
	key       client.ObjectKey
	// cluster and machine are nil if there is none.
	cluster *clusterv1.Cluster
	machine *clusterv1.Machine
	// host is the accepted host data of the machine.
	host children.Host
	// node, and the agent's ConfigMap and pod are nil if there is none, or if it was not read.
	node      *corev1.Node
	configMap *corev1.ConfigMap
	pod       *corev1.Pod
	// disconnected reports that there is no connection.
	disconnected bool
	// These are why an object was not read.
	nodeErr, configMapErr, podErr error
	// failure is why the agent part failed, empty if it did not. staged reports that the agent gets its programs later.
	failure string
	staged  bool
	// recheck is when time alone changes a decision, zero if it never does.
	recheck time.Time
}

// recheckAt sets the time of the next reconcile, unless an earlier one is set. Zero means never.
func (s *scope) recheckAt(at time.Time) {
	s.recheck = instant.Earliest(s.recheck, at)
}

// Reconcile reconciles the Node of one machine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.fresh.Forget(req)
		r.conflicts.Forget(req)
		r.differing.Over(req)
		r.failures.Delete(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !workload.MatchesFilter(r.watchFilter, sm) {
		return ctrl.Result{}, nil // An event of its Cluster, Machine or Node enqueued it; another manager serves it.
	}
	read := sm.ResourceVersion
	if wait := r.fresh.Hold(req, read, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	s, err := r.observe(ctx, req, sm)
	if err != nil || s == nil {
		return r.fresh.ResultOf(req, r.Clock.Now(), err)
	}
	err = r.reconcile(ctx, s)
	r.fresh.Wrote(req, read, sm.ResourceVersion)
	return r.result(ctx, s, err)
}

// reconcile runs all parts. The parts after the agent's report share a back-off after conflicts.
func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	agentErr := r.agent(ctx, s)
	s.failure = r.failure(s.request, actuate.IgnoreSuppressed(agentErr))
	first, err := r.fresh.ResultOf(s.request, s.now, errors.Join(agentErr, r.protection(ctx, s), r.hold(ctx, s)))
	errs := []error{s.unreadable(), err}
	then := ctrl.Result{RequeueAfter: r.conflicts.Hold(s.request, s.scheduled.ResourceVersion, s.now)}
	if then.IsZero() && s.nodeErr == nil {
		then, err = r.conflicts.ResultOf(s.request, s.now, errors.Join(r.taints(ctx, s), r.departure(ctx, s)))
		errs = append(errs, err)
	}
	for _, retry := range []ctrl.Result{first, then} {
		if !retry.IsZero() {
			s.recheckAt(s.now.Add(retry.RequeueAfter))
		}
	}
	return errors.Join(errs...)
}

// failure returns the text of the agent part's error, empty for none.
func (r *Reconciler) failure(req ctrl.Request, err error) string {
	if err == nil {
		r.failures.Delete(req)
		return ""
	}
	v, _ := r.failures.Load(req)
	last, _ := v.(installed.Failure)
	f := installed.FailureOf(err, installed.Agent, last)
	r.failures.Store(req, f)
	return f.Text
}

// result returns when to reconcile again. controller-runtime ignores RequeueAfter if there is an error. A part that
// fails must not delay the recheck of another part.
func (r *Reconciler) result(ctx context.Context, s *scope, err error) (ctrl.Result, error) {
	if err == nil {
		r.retries.Forget(s.request)
	}
	if s.recheck.IsZero() {
		return ctrl.Result{}, err
	}
	wait := max(s.recheck.Sub(s.now), time.Millisecond)
	if err != nil {
		telemetry.Failed(name)
		ctrl.LoggerFrom(ctx).Error(err, "Reconciling Node")
		wait = min(wait, r.retries.When(s.request))
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// observe returns nil if the object is paused. It also returns nil before the first connection attempt, so that a
// starting manager does not change the status.
func (r *Reconciler) observe(ctx context.Context, req ctrl.Request, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	s := &scope{now: r.Clock.Now(), request: req, scheduled: sm, key: workload.ClusterKey(sm)}
	var paused bool
	var err error
	if s.cluster, paused, err = workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName); err != nil || paused {
		return nil, err
	}
	if s.machine, err = r.Children.Machine(ctx, sm); err != nil {
		return nil, err
	}
	if s.host, err = r.Children.Host(ctx, sm, s.machine); err != nil || s.host.Node == "" {
		return s, err
	}
	if err := r.observeWorkload(ctx, s); workload.NotConnected(err) {
		s.disconnected, s.nodeErr, s.configMapErr, s.podErr = true, nil, nil, nil
		if r.ClusterCache.GetHealthCheckingState(ctx, s.key).LastProbeTime.IsZero() {
			return nil, nil // The first connection attempt triggers a reconcile, also if it fails.
		}
	}
	return s, nil
}

// observeWorkload reads the workload cluster.
func (r *Reconciler) observeWorkload(ctx context.Context, s *scope) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	reader, err := r.ClusterCache.GetReader(ctx, s.key)
	if s.nodeErr = err; err != nil {
		return err
	}
	if s.nodeErr = r.nodes.Start(ctx, s.key); s.nodeErr == nil {
		s.node, s.nodeErr = workload.Node(ctx, reader, s.host.Node)
	}
	if usesAgent(s.scheduled) {
		s.configMap, s.configMapErr = r.observeConfigMap(ctx, s, reader)
		s.pod, s.podErr = r.observePod(ctx, s, reader)
	}
	return s.unreadable()
}

// unreadable returns why the Node or the agent's objects were not read.
func (s *scope) unreadable() error { return errors.Join(s.nodeErr, s.configMapErr, s.podErr) }

func (r *Reconciler) observeConfigMap(ctx context.Context, s *scope, reader client.Reader) (*corev1.ConfigMap, error) {
	if err := r.configMaps.Start(ctx, s.key); err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: reclaimapi.Namespace, Name: reclaimapi.ConfigMapName(s.host.Node)}, cm); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("reading ConfigMap of the reclaim agent: %w", err))
	}
	return cm, nil
}

func (r *Reconciler) observePod(ctx context.Context, s *scope, reader client.Reader) (*corev1.Pod, error) {
	if err := r.pods.Start(ctx, s.key); err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	// There is one pod per Node. They are only read, so the list is not copied.
	if err := reader.List(ctx, pods, client.InNamespace(reclaimapi.Namespace), installed.AgentLabels, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods of the reclaim agent: %w", err)
	}
	return agentOn(pods.Items, s.host.Node), nil
}

// leaving reports whether the machine is being removed, or its owner has requested it. A deleted ScheduledMachine does
// not suffice: a safety rail can keep its Machine for days.
func (s *scope) leaving() bool {
	sm := s.scheduled
	return sm.BeingReclaimed() || sm.Spec.KillSwitch ||
		s.machine != nil && !s.machine.DeletionTimestamp.IsZero()
}

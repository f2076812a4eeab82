// SPDX-License-Identifier: Apache-2.0

// Package controllers is the one list of everything that runs in the manager.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	evictionguard "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	reclaimagent "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/extensionconfig"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/machinehook"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/nodeconditions"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/nodesync"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/nodetaints"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/orphan"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/protection"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/topology"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	"github.com/finos/cluster-api-addon-provider-5spot/feature"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	plans "github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/manifests"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/webhooks"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/server"
)

// ManagerName is the name of the manager in user agents and events.
const ManagerName = "5spot-controller-manager"

// reclaimConcurrency is how many machines are given back at once. An owner's
// request never waits for a free worker: each costs three writes.
const reclaimConcurrency = 100

// departureConcurrency is how many Clusters are planned for at once. A plan takes
// milliseconds for a thousand machines, and waits for nobody.
const departureConcurrency = 4

// nodesyncConcurrency is how many workload clusters are kept at once. One that
// answers slowly must not hold up the others.
const nodesyncConcurrency = 50

// machinehookConcurrency is how many leaving Machines are looked at in parallel. Extensions
// take no worker: each look costs a write or two.
const machinehookConcurrency = 100

// loadBalancerConcurrency is how many load balancers are asked at once. One that does not
// answer takes a worker for ten seconds, and must not hold up the others.
const loadBalancerConcurrency = 200

// Options are what may differ between two managers.
type Options struct {
	// Version is that of the manager, for its metrics.
	Version string
	// Clock tells the time; nil is the machine's.
	Clock clock.PassiveClock
	// APIClock says whether Clock can be trusted; nil trusts it.
	APIClock *apiclock.Clock
	// WatchFilter is the value of Cluster API's watch label, empty for everything.
	WatchFilter string
	// BypassForeignHooks lets the kill switch and an owner's request delete the
	// infrastructure although somebody else's deletion hook is on the Machine.
	BypassForeignHooks bool
	// ScheduledMachineConcurrency is how many ScheduledMachines are reconciled at once.
	ScheduledMachineConcurrency int
	// DepartureLimits bound how many machines of a Cluster may leave; the zero value does not.
	DepartureLimits plans.Limits
	// WipeGuard holds unscheduled departures while nearly all machines of a Cluster would leave at once,
	// until three checks confirm it.
	WipeGuard bool
	// Lease is how long another manager may believe to lead that cannot renew its lease; zero
	// is that there is no other.
	Lease time.Duration
	// ClusterCacheConcurrency is how many workload clusters are connected at once.
	ClusterCacheConcurrency int
	// ClusterCacheQPS and ClusterCacheBurst limit requests to each workload cluster.
	// Below zero there is no limit, and zero is Cluster API's default.
	ClusterCacheQPS   float32
	ClusterCacheBurst int
	// AgentInstall says who installs the reclaim agent in workload clusters.
	AgentInstall AgentInstall
	// ReclaimAgentImage is the image of the agent; empty is that of the manifests.
	ReclaimAgentImage string
	// ReclaimAgentDetector says how the agent that is installed finds processes.
	ReclaimAgentDetector ReclaimAgentDetector
	// EvictionGuardInstall says who installs the eviction guard in workload clusters, if the
	// feature gate EvictionGuard is on.
	EvictionGuardInstall AgentInstall
	// EvictionGuardImage is the image of the guard; empty is that of the manifests.
	EvictionGuardImage string
	// DetachTaints are the keys of taints that take a Node out of its load balancers, if the
	// feature gate NodeDetach is on.
	DetachTaints []string
	// MaintenanceLead is how long before its end a window is announced on the Node; zero is not
	// at all.
	MaintenanceLead time.Duration
	// Gate says whether anything is carried out; nil carries everything out.
	Gate *actuate.Gate
	// RuntimeExtension says what Cluster API is told of the hooks that the manager
	// serves.
	RuntimeExtension extensionconfig.Options
}

// AgentInstall says who installs what runs in workload clusters.
type AgentInstall string

const (
	// AgentInstallEnabled means that the manager does.
	AgentInstallEnabled AgentInstall = "enabled"
	// AgentInstallDisabled means that somebody else does.
	AgentInstallDisabled AgentInstall = "disabled"
)

// ReclaimAgentDetector says how the agent finds processes, and so what it may do.
type ReclaimAgentDetector string

const (
	// ReclaimAgentDetectorAuto listens to the kernel where it can.
	ReclaimAgentDetectorAuto ReclaimAgentDetector = "auto"
	// ReclaimAgentDetectorPoll polls, which takes no capability.
	ReclaimAgentDetectorPoll ReclaimAgentDetector = "poll"
)

// SetupWithManager adds everything to mgr.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if err := telemetry.Register(metrics.Registry, o.Version); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := scheduledmachine.AddIndexes(ctx, mgr); err != nil {
		return fmt.Errorf("indexing ScheduledMachines: %w", err)
	}
	if err := errors.Join(index.ByMachineNode(ctx, mgr), index.ByMachineProviderID(ctx, mgr)); err != nil {
		return fmt.Errorf("indexing Machines: %w", err)
	}
	if feature.Gates.Enabled(feature.NodeDetach) {
		if err := detach.AddIndexes(ctx, mgr); err != nil {
			return fmt.Errorf("indexing Machines by address: %w", err)
		}
	}
	s, err := newShared(ctx, mgr, o)
	if err != nil {
		return err
	}
	webhooks.SetupWithManager(mgr)
	return errors.Join(s.setUpMachines(), s.setUpNodes(), s.setUpDetach(), s.setUpClusters())
}

// shared is what several controllers are made of.
type shared struct {
	Options

	mgr          ctrl.Manager
	clusterCache clustercache.ClusterCache
	read         children.Reader
	// write has the manager's rate limit, and unlimited none.
	write, unlimited *actuate.Actuator
	recorder         events.EventRecorder
	watch            *workers.Watch
}

func newShared(ctx context.Context, mgr ctrl.Manager, o Options) (*shared, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Gate == nil {
		o.Gate = &actuate.Gate{}
	}
	telemetry.Gated(o.Gate.Paused, o.Gate.DryRun)
	clusterCache, err := newClusterCache(ctx, mgr, o)
	if err != nil {
		return nil, fmt.Errorf("connecting workload clusters: %w", err)
	}
	unlimited, err := unlimitedClient(mgr)
	if err != nil {
		return nil, fmt.Errorf("creating client of the emergency lane: %w", err)
	}
	s := &shared{
		Options: o, mgr: mgr, clusterCache: clusterCache,
		read:  children.Reader{Cached: mgr.GetClient(), Live: mgr.GetAPIReader()},
		write: actuate.Behind(o.Gate, mgr.GetClient()), unlimited: actuate.Behind(o.Gate, unlimited),
		recorder: clipped{mgr.GetEventRecorder(ManagerName)},
		watch:    workers.New(clock.RealClock{}),
	}
	return s, mgr.AddReadyzCheck("workers", s.watch.Check)
}

// setUpMachines adds what makes machines join and leave.
func (s *shared) setUpMachines() error {
	hooks := children.HonourHooks
	if s.BypassForeignHooks {
		hooks = children.BypassHooks
	}
	doubted := s.APIClock
	if !s.WipeGuard && s.DepartureLimits == (plans.Limits{}) {
		doubted = nil // No rail is on.
	}
	steps, woken := s.steps()
	rush, turns, reader, live := &wake.Rush{}, &roster.Roster{}, s.mgr.GetClient(), s.mgr.GetAPIReader()
	return errors.Join(
		(&departure.Reconciler{
			Clock: s.Clock, APIClock: doubted, Roster: turns, Limits: s.DepartureLimits, Lease: s.Lease, WipeGuard: s.WipeGuard,
			Reader: reader, Live: live, ClusterIndex: scheduledmachine.ClusterNameIndex, WatchFilter: s.WatchFilter, Recorder: s.recorder,
		}).SetupWithManager(s.mgr, s.watch.Options(departureConcurrency, workers.Deadline)),
		(&scheduledmachine.Reconciler{
			Clock: s.Clock, APIClock: doubted, Reader: reader, Live: live, Children: s.read, Actuate: s.write,
			ClusterCache: s.clusterCache, Recorder: s.recorder, Hooks: hooks, Rush: rush, Roster: turns, Steps: steps,
		}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(s.ScheduledMachineConcurrency, workers.Deadline)),
		(&reclaim.Reconciler{
			Clock: s.Clock, Reader: reader, Children: s.read, Actuate: s.unlimited,
			ClusterCache: s.clusterCache, Recorder: s.recorder, Hooks: hooks, Rush: rush, Roster: turns,
		}).SetupWithManager(s.mgr, s.WatchFilter, scheduledmachine.ClusterNameIndex, s.watch.Options(reclaimConcurrency, workers.Deadline)),
		(&machinehook.Reconciler{
			Clock: s.Clock, Reader: reader, Live: live, Actuate: s.write, Recorder: s.recorder, Extensions: &hookclient.Client{}, Roster: turns,
			Steps: steps, Woken: woken,
		}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(machinehookConcurrency, workers.Deadline)),
	)
}

// steps are done before a machine leaves, where the features are on, and what wakes those who
// wait for them.
func (s *shared) steps() (steps leaving.Steps, woken []source.Source) {
	if feature.Gates.Enabled(feature.NodeDetach) {
		balancers := detach.Step{Reader: s.mgr.GetClient()}
		pods := &podorder.Step{Clock: s.Clock, Actuate: s.write, ClusterCache: s.clusterCache, Desk: leaving.New(s.Clock)}
		steps, woken = append(steps, balancers, pods), append(append(woken, balancers.Woken(s.mgr)...), pods.Woken())
	}
	if feature.Gates.Enabled(feature.EvictionGuard) {
		operators := &eviction.Step{Clock: s.Clock, Actuate: s.write, ClusterCache: s.clusterCache, Desk: leaving.New(s.Clock), By: ManagerName}
		steps, woken = append(steps, operators), append(woken, operators.Woken())
	}
	return steps, woken
}

// setUpDetach adds what takes Nodes out of load balancers, if that is on.
func (s *shared) setUpDetach() error {
	if !feature.Gates.Enabled(feature.NodeDetach) {
		if len(s.DetachTaints) > 0 {
			s.mgr.GetLogger().Info("--detach-taints is ignored: the feature gate NodeDetach is off", "keys", s.DetachTaints)
		}
		return s.mgr.Add(detach.GateOff{Live: s.mgr.GetAPIReader(), Reader: s.mgr.GetClient(), WatchFilter: s.WatchFilter})
	}
	reader, live := s.mgr.GetClient(), s.mgr.GetAPIReader()
	drivers := detach.NewDrivers(s.Clock, s.write, s.clusterCache)
	return errors.Join(
		metrics.Registry.Register(detach.Collector{Reader: reader, Elected: s.mgr.Elected()}),
		(&detach.NodeReconciler{
			Clock: s.Clock, Reader: reader, Live: live, Actuate: s.write, ClusterCache: s.clusterCache, Recorder: s.recorder,
			Taints: s.DetachTaints, WatchFilter: s.WatchFilter,
			Pods: &podorder.Step{Clock: s.Clock, Actuate: s.write, ClusterCache: s.clusterCache, Desk: leaving.New(s.Clock)},
		}).SetupWithManager(s.mgr, s.watch.Options(s.ScheduledMachineConcurrency, workers.Deadline)),
		(&detach.BalancerReconciler{
			Clock: s.Clock, Reader: reader, Live: live, Actuate: s.write, Recorder: s.recorder, Drivers: drivers, WatchFilter: s.WatchFilter,
		}).SetupWithManager(s.mgr, s.watch.Options(loadBalancerConcurrency, workers.Deadline)),
	)
}

// setUpNodes adds what keeps Nodes and their agents as they are asked for.
func (s *shared) setUpNodes() error {
	install, err := agentManifests(s.Options)
	if err != nil {
		return fmt.Errorf("reading manifests of the reclaim agent: %w", err)
	}
	guard, err := guardManifests(s.Options)
	if err != nil {
		return fmt.Errorf("reading manifests of the eviction guard: %w", err)
	}
	board, reader := installation.NewBoard(), s.mgr.GetClient()
	return errors.Join(
		(&nodesync.Reconciler{
			Clock: s.Clock, Reader: reader, ClusterIndex: scheduledmachine.ClusterNameIndex, Children: s.read,
			Actuate: s.write, ClusterCache: s.clusterCache, Recorder: s.recorder, Manifests: install, Guard: guard, Board: board,
		}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(nodesyncConcurrency, workers.Deadline)),
		(&nodetaints.Reconciler{
			Clock: s.Clock, Reader: reader, Children: s.read, Actuate: s.write, ClusterCache: s.clusterCache,
		}).SetupWithManager(s.mgr, s.WatchFilter, scheduledmachine.ClusterNameIndex, s.watch.Options(s.ScheduledMachineConcurrency, workers.Deadline)),
		(&nodeconditions.Reconciler{
			Clock: s.Clock, Reader: reader, Children: s.read, Actuate: s.write, ClusterCache: s.clusterCache, Lead: s.MaintenanceLead,
		}).SetupWithManager(s.mgr, s.WatchFilter, scheduledmachine.ClusterNameIndex, s.watch.Options(s.ScheduledMachineConcurrency, workers.Deadline)),
		(&protection.Reconciler{
			Clock: s.Clock, Reader: reader, Children: s.read, Actuate: s.write,
			ClusterCache: s.clusterCache, Board: board, Recorder: s.recorder,
		}).SetupWithManager(s.mgr, s.WatchFilter, scheduledmachine.ClusterNameIndex, s.watch.Options(s.ScheduledMachineConcurrency, workers.Deadline)),
	)
}

// setUpClusters adds what answers for whole Clusters.
func (s *shared) setUpClusters() error {
	if err := serveHooks(s.mgr, s.Options); err != nil {
		return fmt.Errorf("serving Cluster API's hooks: %w", err)
	}
	err := errors.Join((&orphan.Reconciler{
		Reader: s.mgr.GetClient(), WatchFilter: s.WatchFilter,
	}).SetupWithManager(s.mgr, s.watch.Options(1, workers.Deadline)), (&topology.Reconciler{
		Clock: s.Clock, Reader: s.mgr.GetClient(), Live: s.mgr.GetAPIReader(), ClusterIndex: scheduledmachine.ClusterNameIndex,
		Actuate: s.write.As(v1alpha1.TopologyFieldManager), Recorder: s.recorder,
	}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(s.ScheduledMachineConcurrency, workers.Deadline)))
	if err != nil || s.RuntimeExtension.Mode == extensionconfig.Elsewhere {
		return err
	}
	return (&extensionconfig.Reconciler{
		Options: s.RuntimeExtension, Live: s.mgr.GetAPIReader(), Actuate: s.write,
	}).SetupWithManager(s.mgr, s.watch.Options(1, workers.Deadline))
}

// serveHooks serves Cluster API's hooks where admission webhooks are served, on every
// replica. Nobody calls them before they are registered.
func serveHooks(mgr ctrl.Manager, o Options) error {
	s, ok := mgr.GetWebhookServer().(*server.Server)
	if !ok {
		return fmt.Errorf("the webhook server is a %T: make it with runtime-extension/server", mgr.GetWebhookServer())
	}
	return s.Serve(handlers.All(mgr.GetClient(), o.Clock, scheduledmachine.ClusterNameIndex)...)
}

// agentManifests are what the manager installs in workload clusters.
func agentManifests(o Options) ([]*unstructured.Unstructured, error) {
	if o.AgentInstall == AgentInstallDisabled {
		return nil, nil
	}
	objects, err := reclaimagent.Objects()
	if err != nil {
		return nil, err
	}
	if o.ReclaimAgentDetector == ReclaimAgentDetectorPoll {
		if objects, err = reclaimagent.Polling(objects); err != nil {
			return nil, err
		}
	}
	return manifests.WithImage(objects, o.ReclaimAgentImage)
}

// guardManifests are what the manager installs in workload clusters that have machines.
func guardManifests(o Options) ([]*unstructured.Unstructured, error) {
	if !installsGuard(o) {
		return nil, nil
	}
	objects, err := evictionguard.Objects()
	if err != nil {
		return nil, err
	}
	agent, err := reclaimagent.Objects()
	if err != nil {
		return nil, err
	}
	objects[0] = agent[0] // Both are at home in one Namespace, which nobody changes for the other.
	return manifests.WithImage(objects, o.EvictionGuardImage)
}

func installsGuard(o Options) bool {
	return feature.Gates.Enabled(feature.EvictionGuard) && o.EvictionGuardInstall != AgentInstallDisabled
}

// newClusterCache caches Nodes, of those only what is read, and what is ours.
func newClusterCache(ctx context.Context, mgr ctrl.Manager, o Options) (clustercache.ClusterCache, error) {
	//nolint:forbidigo // The cluster cache reads kubeconfigs with it.
	secrets, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Cache:      &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return nil, err
	}
	byObject := nodesync.CacheByObject(installsGuard(o))
	maps.Copy(byObject, protection.CacheByObject())
	byObject[&corev1.Node{}] = cache.ByObject{Transform: workload.TrimNode}
	var indexes []clustercache.CacheOptionsIndex
	if feature.Gates.Enabled(feature.NodeDetach) {
		indexes = append(indexes, detach.NodesByAddress())
	}
	return clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     secrets,
		WatchFilterValue: o.WatchFilter,
		// The value above is asked for changes alone: a Cluster that loses the label would
		// stay connected until a restart, and one that gets another's would be so twice
		// (ADR 0025).
		ClusterFilter: func(cluster *clusterv1.Cluster) bool {
			return o.WatchFilter == "" || labels.HasWatchLabel(cluster, o.WatchFilter)
		},
		Cache: clustercache.CacheOptions{
			ByObject: byObject,
			Indexes:  indexes,
		},
		Client: clustercache.ClientOptions{
			QPS: o.ClusterCacheQPS, Burst: o.ClusterCacheBurst,
			UserAgent: remote.DefaultClusterAPIUserAgent(ManagerName),
		},
	}, controller.Options{MaxConcurrentReconciles: o.ClusterCacheConcurrency})
}

// unlimitedClient writes without a client-side rate limit: a thousand machines
// that leave at five must not make one owner wait.
func unlimitedClient(mgr ctrl.Manager) (client.Client, error) { //nolint:forbidigo // It is made for the actuator.
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS, config.RateLimiter = -1, nil
	//nolint:forbidigo // It is made for the actuator.
	return client.New(config, client.Options{
		Scheme: mgr.GetScheme(),
		Cache:  &client.CacheOptions{Reader: mgr.GetCache(), Unstructured: true},
	})
}

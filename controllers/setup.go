// SPDX-License-Identifier: Apache-2.0

// Package controllers sets up all controllers, webhooks and hooks of the manager, and configures the caches and clients
// that they share.
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
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/installation"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/manifests"
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

// reclaimConcurrency is how many machines are reclaimed at once. It is large, so that an owner's request need not wait
// for a worker: each costs three writes.
const reclaimConcurrency = 100

// departureConcurrency is how many Clusters are planned at once. A plan takes milliseconds for a thousand machines.
const departureConcurrency = 4

// departureWrites is how many departures of a Cluster are written at once. It is the cap of a thousand machines, so that
// slow webhooks do not delay one behind the other.
const departureWrites = 50

// installationConcurrency is how many workload clusters are reconciled at once. A slow one must not delay the others.
const installationConcurrency = 50

// hookConcurrency is how many leaving Machines are reconciled at once. Calls to extensions do not occupy a
// worker: each reconcile costs one or two writes.
const hookConcurrency = 100

// loadBalancerConcurrency is how many load balancers are called at once. An unresponsive one occupies a worker for ten
// seconds, and must not delay the others.
const loadBalancerConcurrency = 200

// Options configures a manager.
type Options struct {
	// Version is the version of the manager, for its metrics.
	Version string
	// Clock is the time source; nil means the system clock.
	Clock clock.PassiveClock
	// APIClock reports whether Clock is trustworthy; nil means that it is.
	APIClock *apiclock.Clock
	// WatchFilter is the value of Cluster API's watch label, empty for all objects.
	WatchFilter string
	// BypassForeignHooks allows the kill switch and an owner's request to delete the infrastructure although another
	// controller has a deletion hook on the Machine.
	BypassForeignHooks bool
	// ScheduledMachineConcurrency is how many ScheduledMachines are reconciled at once.
	ScheduledMachineConcurrency int
	// DepartureCap bounds how many machines of a Cluster may start to leave; zero sets no limit.
	DepartureCap departurecap.Fraction
	// WipeGuard holds unscheduled departures while nearly all machines of a Cluster or of all Clusters would leave at once,
	// until three checks confirm it.
	WipeGuard bool
	// Lease is how long a former leader that cannot renew its lease may still act as the leader. Zero means that there
	// is no other manager.
	Lease time.Duration
	// ClusterCacheConcurrency is how many workload clusters are connected at once.
	ClusterCacheConcurrency int
	// ClusterCacheQPS and ClusterCacheBurst limit requests to each workload cluster. A negative value means no limit,
	// and zero means Cluster API's default.
	ClusterCacheQPS   float32
	ClusterCacheBurst int
	// AgentInstall is whether the manager installs the reclaim agent in workload clusters.
	AgentInstall AgentInstall
	// ReclaimAgentImage is the image of the agent; empty means the image in the manifests.
	ReclaimAgentImage string
	// ReclaimAgentDetector is how the installed agent detects processes.
	ReclaimAgentDetector ReclaimAgentDetector
	// EvictionGuardInstall is whether the manager installs the eviction guard in workload clusters, if the feature gate
	// EvictionGuard is on.
	EvictionGuardInstall AgentInstall
	// EvictionGuardImage is the image of the guard; empty means the image in the manifests.
	EvictionGuardImage string
	// DetachTaints are the keys of taints that detach a Node from its load balancers, if the feature gate NodeDetach is
	// on.
	DetachTaints []string
	// MaintenanceLead is how long before its end a window is announced on the Node; zero disables the announcement.
	MaintenanceLead time.Duration
	// Gate can suppress all writes, for a pause or a dry run; nil suppresses none.
	Gate *actuate.Gate
	// RuntimeExtension configures the registration of the hooks that the manager serves for Cluster API.
	RuntimeExtension extensionconfig.Options
}

// AgentInstall is whether the manager installs a component in workload clusters.
type AgentInstall string

const (
	// AgentInstallEnabled means that the manager installs it.
	AgentInstallEnabled AgentInstall = "enabled"
	// AgentInstallDisabled means that the manager does not install it.
	AgentInstallDisabled AgentInstall = "disabled"
)

// ReclaimAgentDetector is how the agent detects processes. It determines the agent's capabilities.
type ReclaimAgentDetector string

const (
	// ReclaimAgentDetectorAuto uses the kernel's process events if they are available, else polling.
	ReclaimAgentDetectorAuto ReclaimAgentDetector = "auto"
	// ReclaimAgentDetectorPoll polls /proc, which needs no capability.
	ReclaimAgentDetectorPoll ReclaimAgentDetector = "poll"
)

// SetupWithManager adds all controllers and webhooks to mgr.
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

// shared has the objects that several controllers use.
type shared struct {
	Options

	mgr          ctrl.Manager
	clusterCache clustercache.ClusterCache
	read         children.Reader
	// write has the manager's rate limit; unlimited has none.
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
		write: actuate.NewGated(o.Gate, mgr.GetClient()), unlimited: actuate.NewGated(o.Gate, unlimited),
		recorder: clipped{mgr.GetEventRecorder(ManagerName)},
		watch:    workers.New(clock.RealClock{}),
	}
	return s, mgr.AddReadyzCheck("workers", s.watch.Check)
}

// setUpMachines adds the controllers of machines that join and leave.
func (s *shared) setUpMachines() error {
	hooks := children.HonourHooks
	if s.BypassForeignHooks {
		hooks = children.BypassHooks
	}
	apiClock := s.APIClock
	if !s.WipeGuard && s.DepartureCap == 0 {
		apiClock = nil // No rail is on.
	}
	steps, woken := s.steps(apiClock)
	tracker, reader, live := &wake.ReclaimTracker{}, s.mgr.GetClient(), s.mgr.GetAPIReader()
	return errors.Join(
		(&departure.Reconciler{
			Clock: s.Clock, APIClock: apiClock, Actuate: s.write, Steps: steps, Cap: s.DepartureCap, Writes: departureWrites, Lease: s.Lease, WipeGuard: s.WipeGuard,
			Reader: reader, Live: live, WatchFilter: s.WatchFilter, Recorder: s.recorder,
		}).SetupWithManager(s.mgr, s.watch.Options(departureConcurrency)),
		(&scheduledmachine.Reconciler{
			Clock: s.Clock, APIClock: apiClock, Reader: reader, Live: live, Children: s.read, Actuate: s.write, Unlimited: s.unlimited,
			ClusterCache: s.clusterCache, Recorder: s.recorder, Hooks: hooks, ReclaimTracker: tracker,
		}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(s.ScheduledMachineConcurrency)),
		(&reclaim.Reconciler{
			Clock: s.Clock, Reader: reader, Children: s.read, Actuate: s.unlimited,
			ClusterCache: s.clusterCache, Recorder: s.recorder, Hooks: hooks, ReclaimTracker: tracker,
		}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(reclaimConcurrency)),
		(&departure.HookReconciler{
			Clock: s.Clock, APIClock: apiClock, Reader: reader, Live: live, Actuate: s.write, Recorder: s.recorder, Extensions: &hookclient.Client{},
			Steps: steps, Woken: woken, WatchFilter: s.WatchFilter,
		}).SetupWithManager(s.mgr, s.watch.Options(hookConcurrency)),
		(&departure.OrphanReconciler{Reader: reader, WatchFilter: s.WatchFilter}).SetupWithManager(s.mgr, s.watch.Options(1)),
	)
}

// steps returns the departure steps of the enabled features, and the sources whose events trigger departure.HookReconciler.
func (s *shared) steps(apiClock *apiclock.Clock) (steps leaving.Steps, woken []source.Source) {
	if feature.Gates.Enabled(feature.NodeDetach) {
		balancers := &detach.Step{Reader: s.mgr.GetClient()}
		pods := &podorder.Step{Clock: s.Clock, Actuate: s.write, ClusterCache: s.clusterCache, Calls: leaving.New(s.Clock)}
		steps, woken = append(steps, balancers, pods), append(append(woken, balancers.Woken(s.mgr)...), pods.Woken())
	}
	if feature.Gates.Enabled(feature.EvictionGuard) {
		operators := &eviction.Step{Clock: s.Clock, APIClock: apiClock, Actuate: s.write, ClusterCache: s.clusterCache, Calls: leaving.New(s.Clock), By: ManagerName}
		steps, woken = append(steps, operators), append(woken, operators.Woken())
	}
	return steps, woken
}

// setUpDetach adds the controllers that detach Nodes from load balancers, if the feature is on.
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
			Pods: &podorder.Step{Clock: s.Clock, Actuate: s.write, ClusterCache: s.clusterCache, Calls: leaving.New(s.Clock)},
		}).SetupWithManager(s.mgr, s.watch.Options(s.ScheduledMachineConcurrency)),
		(&detach.BalancerReconciler{
			Clock: s.Clock, Reader: reader, Live: live, Actuate: s.write, Recorder: s.recorder, Drivers: drivers, WatchFilter: s.WatchFilter,
		}).SetupWithManager(s.mgr, s.watch.Options(loadBalancerConcurrency)),
	)
}

// setUpNodes adds the controllers that write to Nodes and install the agent.
func (s *shared) setUpNodes() error {
	install, err := agentManifests(s.Options)
	if err != nil {
		return fmt.Errorf("reading manifests of the reclaim agent: %w", err)
	}
	holding, err := reclaimagent.Holding(install)
	if err != nil {
		return fmt.Errorf("changing manifests of the reclaim agent for a hold: %w", err)
	}
	guard, err := guardManifests(s.Options)
	if err != nil {
		return fmt.Errorf("reading manifests of the eviction guard: %w", err)
	}
	reader := s.mgr.GetClient()
	return errors.Join(
		(&installation.Reconciler{
			Clock: s.Clock, Reader: reader, Children: s.read,
			Actuate: s.write, ClusterCache: s.clusterCache, Recorder: s.recorder, Manifests: install, HoldManifests: holding, Guard: guard,
		}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(installationConcurrency)),
		(&node.Reconciler{
			Clock: s.Clock, Reader: reader, Children: s.read, Actuate: s.write, ClusterCache: s.clusterCache,
			Installs: len(install) > 0, Recorder: s.recorder, Lead: s.MaintenanceLead,
			RolloutFraction: s.DepartureCap,
		}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(s.ScheduledMachineConcurrency)),
	)
}

// setUpClusters adds the controllers of whole Clusters, and Cluster API's hooks.
func (s *shared) setUpClusters() error {
	if err := serveHooks(s.mgr, s.Options); err != nil {
		return fmt.Errorf("serving Cluster API's hooks: %w", err)
	}
	err := (&topology.Reconciler{
		Clock: s.Clock, Reader: s.mgr.GetClient(), Live: s.mgr.GetAPIReader(),
		Actuate: s.write.As(v1alpha1.TopologyFieldManager), Recorder: s.recorder,
	}).SetupWithManager(s.mgr, s.WatchFilter, s.watch.Options(s.ScheduledMachineConcurrency))
	if err != nil || s.RuntimeExtension.Mode == extensionconfig.External {
		return err
	}
	return (&extensionconfig.Reconciler{
		Options: s.RuntimeExtension, Live: s.mgr.GetAPIReader(), Actuate: s.write,
	}).SetupWithManager(s.mgr, s.watch.Options(1))
}

// serveHooks serves Cluster API's hooks on the webhook server of every replica. Cluster API calls them only after they
// are registered.
func serveHooks(mgr ctrl.Manager, o Options) error {
	s, ok := mgr.GetWebhookServer().(*server.Server)
	if !ok {
		return fmt.Errorf("the webhook server is a %T: make it with runtime-extension/server", mgr.GetWebhookServer())
	}
	return s.Serve(handlers.All(mgr.GetClient(), o.Clock)...)
}

// agentManifests returns the manifests of the agent; none if the manager does not install it.
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

// guardManifests returns the manifests of the guard; none if the manager does not install it.
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
	objects[0] = agent[0] // Agent and guard share one Namespace. Both use the same manifest, so that neither changes it.
	return manifests.WithImage(objects, o.EvictionGuardImage)
}

func installsGuard(o Options) bool {
	return feature.Gates.Enabled(feature.EvictionGuard) && o.EvictionGuardInstall != AgentInstallDisabled
}

// newClusterCache caches trimmed Nodes, and of other kinds only 5-Spot's objects.
func newClusterCache(ctx context.Context, mgr ctrl.Manager, o Options) (clustercache.ClusterCache, error) {
	//nolint:forbidigo // The cluster cache reads kubeconfigs with it.
	secrets, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Cache:      &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return nil, err
	}
	byObject := installation.CacheByObject(installsGuard(o))
	maps.Copy(byObject, node.CacheByObject())
	byObject[&corev1.Node{}] = cache.ByObject{Transform: workload.TrimNode}
	var indexes []clustercache.CacheOptionsIndex
	if feature.Gates.Enabled(feature.NodeDetach) {
		indexes = append(indexes, detach.NodesByAddress())
	}
	return clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     secrets,
		WatchFilterValue: o.WatchFilter,
		// Cluster API checks WatchFilterValue only when a Cluster changes. Without ClusterFilter, a Cluster that loses
		// the label would stay connected until a restart. Two managers would connect to a Cluster whose label changes
		// (ADR 0025).
		ClusterFilter: func(cluster *clusterv1.Cluster) bool {
			return workload.MatchesFilter(o.WatchFilter, cluster)
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

// unlimitedClient returns a client without a client-side rate limit. A thousand departures at one edge must not delay
// an owner's request or a kill switch.
func unlimitedClient(mgr ctrl.Manager) (client.Client, error) { //nolint:forbidigo // It is made for the actuator.
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS, config.RateLimiter = -1, nil
	//nolint:forbidigo // It is made for the actuator.
	return client.New(config, client.Options{
		Scheme: mgr.GetScheme(),
		Cache:  &client.CacheOptions{Reader: mgr.GetCache(), Unstructured: true},
	})
}

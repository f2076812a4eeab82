// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/extensionconfig"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/server"
)

// Options are the flags of the manager. Names and defaults follow Cluster API's managers.
type Options struct {
	// Clock is the source of the time; nil means the system clock. No flag sets it.
	Clock clock.PassiveClock
	// Version is the version of the manager for its metrics.
	Version string

	leaderElect                         bool
	leaseDuration, renewDeadline, retry time.Duration
	leaseNamespace                      string
	namespace                           string
	pod                                 string
	profilerAddress                     string
	healthAddress                       string
	syncPeriod                          time.Duration
	qps                                 float32
	burst                               int
	webhookPort                         int
	webhookCertDir                      string
	webhookCertName, webhookKeyName     string
	actuationPaused, dryRun             bool
	auditLog                            string

	controllers controllers.Options
	diagnostics flags.ManagerOptions
	logs        *logs.Options
}

// NewOptions returns options without defaults. FlagSet and AddFlags set the defaults.
func NewOptions() *Options { return &Options{logs: logs.NewOptions()} }

// FlagSet returns the flags of a program that runs the manager. The program may add its own.
func (o *Options) FlagSet(program string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	o.AddFlags(fs)
	return fs
}

// unfilled matches a variable that clusterctl must replace.
var unfilled = regexp.MustCompile(`\$\{([A-Z0-9_]+)`)

// Parse parses the command line with the flags from FlagSet.
func (o *Options) Parse(fs *pflag.FlagSet, args []string) error {
	for _, arg := range args {
		if found := unfilled.FindStringSubmatch(arg); found != nil {
			return fmt.Errorf("%s: the variable %s has no value: install with clusterctl, or write manifests with clusterctl generate yaml", arg, found[1])
		}
	}
	return fs.Parse(args)
}

// AddFlags adds every flag of the manager to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	logsv1.AddFlags(o.logs, fs)
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Run the controllers only while holding the lease, so that several replicas can run.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long replicas wait before they take over from a leader that stopped renewing its lease.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long the leader retries to renew its lease before it exits.")
	fs.DurationVar(&o.retry, "leader-elect-retry-period", 2*time.Second, "How long to wait between attempts to take or renew the lease.")
	fs.StringVar(&o.leaseNamespace, "leader-election-namespace", "", "Namespace of the lease. Empty means the namespace of the manager's pod; required outside of a cluster.")
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch; empty means all.")
	fs.StringVar(&o.controllers.WatchFilter, "watch-filter", "", fmt.Sprintf("Reconcile only objects whose label %s has this value, and connect only to Clusters that have it; empty means all.", clusterv1.WatchLabel))
	fs.StringVar(&o.profilerAddress, "profiler-address", "", "Address of the pprof endpoint, such as localhost:6060; empty means none.")
	fs.StringVar(&o.healthAddress, "health-addr", ":9440", "Address of the health endpoint.")
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute, "How often the caches deliver every object again. Settled objects are not written because of it.")
	fs.Float32Var(&o.qps, "kube-api-qps", 1000, "Requests per second to the management cluster. A thousand windows may open at the same time; emergency reclaims and kill switches are not limited.")
	fs.IntVar(&o.burst, "kube-api-burst", 2000, "Requests to the management cluster in one burst.")
	fs.Float32Var(&o.controllers.ClusterCacheQPS, "clustercache-client-qps", -1, "Requests per second to each workload cluster. Below zero only the API server's own limit applies, so that work on many Nodes does not keep other owners waiting.")
	fs.IntVar(&o.controllers.ClusterCacheBurst, "clustercache-client-burst", 30, "Requests to each workload cluster in one burst, if --clustercache-client-qps sets a limit.")
	fs.IntVar(&o.controllers.ClusterCacheConcurrency, "clustercache-concurrency", 100, "Workload clusters connected at the same time.")
	fs.IntVar(&o.controllers.ScheduledMachineConcurrency, "scheduledmachine-concurrency", 80, "ScheduledMachines reconciled at the same time. More than 100 concurrent requests, watches and emergencies included, only open more connections.")
	fs.StringVar((*string)(&o.controllers.AgentInstall), "agent-install", string(controllers.AgentInstallEnabled), "Whether the manager installs the reclaim agent in workload clusters: enabled installs it where a ScheduledMachine has killIfCommands; disabled leaves the installation to you. The manager maintains the labels and ConfigMaps of Nodes in either case.")
	fs.StringVar(&o.controllers.ReclaimAgentImage, "reclaim-agent-image", "", "Image of the reclaim agent that the manager installs. Empty means the image of --pod.")
	fs.StringVar(&o.pod, "pod", "", "Namespace and name of the pod that the manager runs in, separated by a slash. The reclaim agent and the eviction guard get the same image, so that all come from one mirror. Empty means the image in the manifests.")
	fs.StringVar((*string)(&o.controllers.ReclaimAgentDetector), "reclaim-agent-detector", string(controllers.ReclaimAgentDetectorAuto), "How the reclaim agent that the manager installs finds programs: auto listens to the kernel where it can; poll scans /proc every 250 ms, and needs no capability, no root user and no host network.")
	fs.StringVar((*string)(&o.controllers.EvictionGuardInstall), "eviction-guard-install", string(controllers.AgentInstallEnabled), "Whether the manager installs the eviction guard in workload clusters: enabled installs it where a ScheduledMachine exists; disabled leaves the installation to you. Needs the feature gate EvictionGuard.")
	fs.StringVar(&o.controllers.EvictionGuardImage, "eviction-guard-image", "", "Image of the eviction guard that the manager installs. Empty means the image of --pod.")
	fs.DurationVar(&o.controllers.MaintenanceLead, "maintenance-lead-time", 10*time.Minute, "How long before a window closes the Node gets the condition MaintenancePlanned; 0 means never.")
	fs.BoolVar(&o.controllers.BypassForeignHooks, "emergency-bypass-foreign-hooks", true, "On the kill switch and on an owner's request, delete the infrastructure even if the Machine has deletion hooks of other controllers. If false, the infrastructure waits for these hooks, and the status names them.")
	fs.BoolVar(&o.actuationPaused, "actuation-paused", false, "Pause actuation: no machine joins or leaves, not even for its owner, and no Node is changed. The manager still watches, decides, counts and reports. The pause ends when the manager is started without this flag.")
	fs.BoolVar(&o.dryRun, "dry-run", false, "Only report decisions, in the log, the metrics and the decision audit log. The manager writes nothing, not even status, and uses another lease, so that it can run beside an active one. With --actuation-paused, decisions count as suppressed.")
	fs.StringVar(&o.auditLog, "audit-log", "", "File to which one line of JSON is appended for each write that makes a machine join or leave; - is standard output, and empty is off.")
	fs.TextVar(&o.controllers.DepartureCap, "departure-cap-fraction", departurecap.Fraction(50_000), "Share of a Cluster's machines, and of the machines of all Clusters that this manager serves, that may start to leave within 10 s, as a decimal `fraction`. One machine always may; 0 means no limit. The kill switch and owners' requests are exempt.")
	fs.BoolVar(&o.controllers.WipeGuard, "wipe-guard", true, "Hold unannounced departures while nearly all machines of a Cluster or of all Clusters would leave at once, until three checks confirm it, which takes 20 s. The kill switch and owners' requests are exempt.")
	fs.StringSliceVar(&o.controllers.DetachTaints, "detach-taints", nil, "Keys of taints that mark a Node as leaving, such as karpenter.sh/disrupted: 5-Spot detaches such a Node from its load balancers, as it does a cordoned Node. A key that ends with * is a prefix. Needs the feature gate NodeDetach.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port of the webhook server.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/", "Directory of the webhook server's certificate and key.")
	fs.StringVar(&o.webhookCertName, "webhook-cert-name", "tls.crt", "File of the webhook server's certificate, below --webhook-cert-dir.")
	fs.StringVar(&o.webhookKeyName, "webhook-key-name", "tls.key", "File of the webhook server's key, below --webhook-cert-dir.")
	fs.StringVar((*string)(&o.controllers.RuntimeExtension.Mode), "runtime-extension", string(extensionconfig.Enabled), "Whether Cluster API calls the manager before it deletes or upgrades a Cluster of a topology: enabled registers the manager if Cluster API's feature gate RuntimeSDK is on; disabled withdraws an earlier registration; external means that another manager of this installation registers for all shards, and this one does nothing.")
	fs.StringVar(&o.controllers.RuntimeExtension.URL, "runtime-extension-url", "", "Where Cluster API reaches the webhook server of a manager that runs outside of the management cluster, such as https://192.0.2.1:9443. Empty means the Service in the namespace of --pod.")
	flags.AddManagerOptions(fs, &o.diagnostics)
	feature.MutableGates.AddFlag(fs)
	fs.AddGoFlag(flag.CommandLine.Lookup(config.KubeconfigFlagName))
}

var extensionModes = []extensionconfig.Mode{extensionconfig.Enabled, extensionconfig.Disabled, extensionconfig.External}

// Validate returns an error for the first flag with an invalid value.
func (o *Options) Validate() error {
	switch {
	case o.controllers.ScheduledMachineConcurrency < 1:
		return fmt.Errorf("--scheduledmachine-concurrency=%d: must be at least 1", o.controllers.ScheduledMachineConcurrency)
	case o.controllers.ClusterCacheConcurrency < 1:
		return fmt.Errorf("--clustercache-concurrency=%d: must be at least 1", o.controllers.ClusterCacheConcurrency)
	case o.syncPeriod <= 0:
		return fmt.Errorf("--sync-period=%s: must be positive, such as 10m", o.syncPeriod)
	case o.controllers.MaintenanceLead < 0:
		return fmt.Errorf("--maintenance-lead-time=%s: must not be negative; 0 means never", o.controllers.MaintenanceLead)
	case o.renewDeadline >= o.leaseDuration:
		return fmt.Errorf("--leader-elect-renew-deadline=%s: must be shorter than --leader-elect-lease-duration=%s", o.renewDeadline, o.leaseDuration)
	case o.controllers.AgentInstall != controllers.AgentInstallEnabled && o.controllers.AgentInstall != controllers.AgentInstallDisabled:
		return fmt.Errorf("--agent-install=%s: must be %s or %s", o.controllers.AgentInstall, controllers.AgentInstallEnabled, controllers.AgentInstallDisabled)
	case o.controllers.EvictionGuardInstall != controllers.AgentInstallEnabled && o.controllers.EvictionGuardInstall != controllers.AgentInstallDisabled:
		return fmt.Errorf("--eviction-guard-install=%s: must be %s or %s", o.controllers.EvictionGuardInstall, controllers.AgentInstallEnabled, controllers.AgentInstallDisabled)
	case o.controllers.ReclaimAgentDetector != controllers.ReclaimAgentDetectorAuto && o.controllers.ReclaimAgentDetector != controllers.ReclaimAgentDetectorPoll:
		return fmt.Errorf("--reclaim-agent-detector=%s: must be %s or %s", o.controllers.ReclaimAgentDetector, controllers.ReclaimAgentDetectorAuto, controllers.ReclaimAgentDetectorPoll)
	case !slices.Contains(extensionModes, o.controllers.RuntimeExtension.Mode):
		return fmt.Errorf("--runtime-extension=%s: must be one of %v", o.controllers.RuntimeExtension.Mode, extensionModes)
	case o.controllers.RuntimeExtension.URL != "" && !httpsURL.MatchString(o.controllers.RuntimeExtension.URL):
		return fmt.Errorf("--runtime-extension-url=%s: must be https, such as https://192.0.2.1:9443", o.controllers.RuntimeExtension.URL)
	case o.pod != "" && !namespacedName.MatchString(o.pod):
		return fmt.Errorf("--pod=%s: must be a namespace and a name, such as 5spot-system/manager-0", o.pod)
	default:
		return validTaints(o.controllers.DetachTaints)
	}
}

// validTaints returns an error for the first key of --detach-taints that no taint can have. Such a key would
// match no Node without any notice. A single * would match every taint.
func validTaints(keys []string) error {
	for _, key := range keys {
		whole := key
		if prefix, open := strings.CutSuffix(key, "*"); open && prefix != "" {
			whole = prefix + "x"
		}
		if len(validation.IsQualifiedName(whole)) > 0 {
			return fmt.Errorf("--detach-taints=%s: must be the key of a taint, such as karpenter.sh/disrupted, without value and effect; it may end with * for all that begin so", key)
		}
	}
	return nil
}

// leaseName returns the name of the lease. Each shard has its own, so that several shards can run in one
// namespace. The suffix is a hash, because a label value may not be a valid object name.
func (o *Options) leaseName() string {
	name := "controller-leader-election-5spot"
	if o.dryRun {
		name += "-dry-run" // A dry run must not take the lease of a working manager.
	}
	if o.namespace == "" && o.controllers.WatchFilter == "" {
		return name
	}
	sum := sha256.Sum256([]byte(o.namespace + "/" + o.controllers.WatchFilter))
	return name + "-" + hex.EncodeToString(sum[:5])
}

// httpsURL is the form of --runtime-extension-url. Cluster API uses the whole URL.
var httpsURL = regexp.MustCompile(`^https://[^/@?#]+(/[^?#]*)?$`)

// registration returns the options for the registration of the runtime extension.
func (o *Options) registration() extensionconfig.Options {
	r := o.controllers.RuntimeExtension
	r.PodNamespace, _, _ = strings.Cut(o.pod, "/")
	r.WatchedNamespace = o.namespace
	r.CertDir, r.CertName, r.KeyName = o.webhookCertDir, o.webhookCertName, o.webhookKeyName
	return r
}

// lease returns for how long another manager may still act as leader, zero without leader election.
func (o *Options) lease() time.Duration {
	if !o.leaderElect {
		return 0
	}
	return o.leaseDuration
}

// manager returns controller-runtime's options for these flags.
func (o *Options) manager(scheme *runtime.Scheme) (ctrl.Options, error) {
	tls, metrics, err := flags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return ctrl.Options{}, fmt.Errorf("reading diagnostics flags: %w", err)
	}
	ofClusters, err := labels.NewRequirement(clusterv1.ClusterNameLabel, "exists", nil)
	if err != nil {
		return ctrl.Options{}, err
	}
	caches := cache.Options{
		SyncPeriod: &o.syncPeriod,
		// Cluster API labels the kubeconfigs of workload clusters. No other Secret is read.
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:                            {Label: labels.NewSelector().Add(*ofClusters)},
			&runtimev1.ExtensionConfig{}:                extensionconfig.CacheByObject(),
			&apiextensionsv1.CustomResourceDefinition{}: {Transform: kinds.Trimmed},
		},
	}
	if o.namespace != "" {
		caches.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	webhooks, err := server.New(webhook.Options{
		Port: o.webhookPort, CertDir: o.webhookCertDir,
		CertName: o.webhookCertName, KeyName: o.webhookKeyName, TLSOpts: tls,
	})
	if err != nil {
		return ctrl.Options{}, fmt.Errorf("creating webhook server: %w", err)
	}
	return ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              o.leaseName(),
		LeaderElectionNamespace:       o.leaseNamespace,
		LeaderElectionResourceLock:    resourcelock.LeasesResourceLock,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retry,
		HealthProbeBindAddress:        o.healthAddress,
		PprofBindAddress:              o.profilerAddress,
		Metrics:                       *metrics,
		Cache:                         caches,
		Client:                        client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		WebhookServer:                 webhooks,
	}, nil
}

// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

const (
	// LeaseName is the name of the lease that elects the replica which reconciles requests.
	LeaseName = "eviction-guard-leader-election-5spot"
	userAgent = "5spot-eviction-guard"
)

// Flags are the flags of the guard. Names and defaults match the manager's.
type Flags struct {
	Options

	leaderElect    bool
	leaseNamespace string
	healthAddress  string
	metricsAddress string
	webhookHost    string
	webhookPort    int
	qps            float32
	burst          int
	logs           *logs.Options
}

// FlagSet returns the flags of a program that runs the guard.
func (f *Flags) FlagSet(program string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	f.logs = logs.NewOptions()
	logsv1.AddFlags(f.logs, fs)
	fs.BoolVar(&f.leaderElect, "leader-elect", false, "Reconcile RescheduleRequests only while holding the lease, so that several replicas can run. Every replica serves the webhook.")
	fs.StringVar(&f.leaseNamespace, "leader-election-namespace", "", "Namespace of the lease. Empty means the namespace of the guard's pod; required outside of a cluster.")
	fs.StringVar(&f.healthAddress, "health-addr", ":9440", "Address of the health endpoint.")
	fs.StringVar(&f.metricsAddress, "metrics-addr", ":8080", "Address of the metrics endpoint; 0 is none.")
	fs.StringVar(&f.webhookHost, "webhook-host", "", "Address that the webhook server binds to; empty means all.")
	fs.IntVar(&f.webhookPort, "webhook-port", 9443, "Port of the webhook server.")
	fs.StringVar(&f.CertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/", "Directory of the webhook server's certificate and key, tls.crt and tls.key. They are read again when they change.")
	fs.StringVar((*string)(&f.Certificates), "certificates", string(CertificatesExternal), "Source of the certificate of the webhook server: self means that the guard creates it, stores it in its Secret and sets the caBundle; external means another program, such as cert-manager.")
	fs.StringSliceVar(&f.DrainTaints, "drain-taints", nil, fmt.Sprintf("Keys of further taints that mark a Node as being drained, in addition to a cordon and %v.", eviction.DrainTaints))
	fs.DurationVar(&f.NameProtection, "name-protection-duration", eviction.DefaultNameProtection, "How long after the creation of a pod with the name of a moved pod an eviction without a UID is answered with 404, because it may be meant for the moved pod. Must be longer than the retry interval of every drainer.")
	fs.Float32Var(&f.qps, "kube-api-qps", 500, "Requests per second to the API server.")
	fs.IntVar(&f.burst, "kube-api-burst", 1000, "Requests to the API server in one burst.")
	fs.AddGoFlag(flag.CommandLine.Lookup(config.KubeconfigFlagName))
	return fs
}

// Validate returns an error for the first invalid flag.
func (f *Flags) Validate() error {
	if f.NameProtection < time.Second {
		return fmt.Errorf("--name-protection-duration=%s: must be at least 1s", f.NameProtection)
	}
	for _, key := range f.DrainTaints {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("--drain-taints: %q: must be the key of a taint: %s", key, problems[0])
		}
	}
	if f.Certificates != CertificatesExternal && f.Certificates != CertificatesSelf {
		return fmt.Errorf("--certificates=%s: must be %s or %s", f.Certificates, CertificatesSelf, CertificatesExternal)
	}
	return nil
}

// Scheme returns a scheme with every kind that the guard reads or writes as a typed object.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(evictionv1.AddToScheme(scheme))
	return scheme
}

// Run runs the guard until ctx ends. It may be called once in a process, because logging options are global.
func Run(ctx context.Context, f *Flags) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if err := logsv1.ValidateAndApply(f.logs, nil); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	rest, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	rest.QPS, rest.Burst, rest.UserAgent = f.qps, f.burst, userAgent
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                 Scheme(),
		HealthProbeBindAddress: f.healthAddress,
		Metrics:                metricsserver.Options{BindAddress: f.metricsAddress},
		Cache:                  cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: workload.TrimNode}, &corev1.Pod{}: {Transform: trimPod}}, NewInformer: newInformer},
	})
	if err != nil {
		return fmt.Errorf("creating manager: %w", err)
	}
	f.Lease, err = leaderelection.NewResourceLock(rest, mgr, leaderelection.Options{
		LeaderElection: f.leaderElect, LeaderElectionNamespace: f.leaseNamespace, LeaderElectionID: LeaseName, RenewDeadline: renewDeadline,
	})
	if err != nil {
		return fmt.Errorf("preparing the lease: %w", err)
	}
	f.Webhook = webhook.NewServer(webhook.Options{Host: f.webhookHost, Port: f.webhookPort, CertDir: f.CertDir})
	f.Registry, f.Clock = metrics.Registry, clock.RealClock{}
	if err := SetupWithManager(ctx, mgr, f.Options); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	return mgr.Start(ctx)
}

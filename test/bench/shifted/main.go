// SPDX-License-Identifier: Apache-2.0

// Command shifted is the manager with a clock that is off by a fixed amount, so
// that a window's edge comes when a benchmark is ready for it. The clock runs at
// its real speed. Everything else is wired, and defaults, as in cmd/manager.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// flags are those of the manager that a plane sets, and the clock.
type flags struct {
	health, diagnostics, certs string
	port, burst                int
	qps                        float64
	sync, offset               time.Duration
	controllers                controllers.Options
}

func main() {
	f := flags{controllers: controllers.Options{ClusterCacheConcurrency: 100, ClusterCacheQPS: 20, ClusterCacheBurst: 30}}
	flag.StringVar(&f.health, "health-addr", ":9440", "Address of the health endpoint.")
	flag.StringVar(&f.diagnostics, "diagnostics-address", "0", "Address of the metrics endpoint.")
	flag.Bool("insecure-diagnostics", true, "Always: there is no other way here.")
	flag.IntVar(&f.port, "webhook-port", 9443, "Port of the webhook server.")
	flag.StringVar(&f.certs, "webhook-cert-dir", "", "Directory of the webhook server's certificate and key.")
	flag.Float64Var(&f.qps, "kube-api-qps", 100, "Requests per second to the management cluster.")
	flag.IntVar(&f.burst, "kube-api-burst", 200, "Requests to the management cluster in one burst.")
	flag.IntVar(&f.controllers.ScheduledMachineConcurrency, "scheduledmachine-concurrency", 100, "ScheduledMachines reconciled at the same time.")
	flag.DurationVar(&f.sync, "sync-period", 10*time.Minute, "How often the caches deliver every object again.")
	flag.DurationVar(&f.offset, "clock-offset", 0, "Added to the time of the machine.")
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	f.controllers.Clock = shifted{f.offset}
	if err := run(ctrl.SetupSignalHandler(), f); err != nil {
		fmt.Fprintln(os.Stderr, "shifted:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, f flags) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(f.qps), f.burst
	config.UserAgent = remote.DefaultClusterAPIUserAgent(controllers.ManagerName)
	ofClusters, err := labels.NewRequirement(clusterv1.ClusterNameLabel, "exists", nil)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: f.health, Metrics: metricsserver.Options{BindAddress: f.diagnostics},
		Cache: cache.Options{
			SyncPeriod: &f.sync,
			ByObject:   map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labels.NewSelector().Add(*ofClusters)}},
		},
		Client:        client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		WebhookServer: webhook.NewServer(webhook.Options{Port: f.port, CertDir: f.certs}),
	})
	if err != nil {
		return fmt.Errorf("creating manager: %w", err)
	}
	if err := controllers.SetupWithManager(ctx, mgr, f.controllers); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// shifted is the real clock, set forward or back.
type shifted struct{ offset time.Duration }

// Now implements clock.PassiveClock.
func (s shifted) Now() time.Time { return clock.RealClock{}.Now().Add(s.offset) }

// Since implements clock.PassiveClock.
func (s shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// SPDX-License-Identifier: Apache-2.0

// Command capi-dev serves Cluster API's DevCluster and DevMachine with the in-memory backend. Unlike the dev
// infrastructure provider, it has no container backend, and its ports can be chosen. Two planes can thus run side by
// side on one machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/test/infrastructure/container"
	"sigs.k8s.io/cluster-api/test/infrastructure/docker/controllers"
	"sigs.k8s.io/cluster-api/test/infrastructure/docker/webhooks"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// options are the flags of the command.
type options struct {
	webhookPort, concurrency  int
	webhookCertDir            string
	healthAddr, diagnostics   string
	host                      string
	minPort, maxPort, dbgPort int32
}

func main() {
	o, log := options{}, logs.NewOptions()
	logsv1.AddFlags(log, pflag.CommandLine)
	o.addFlags(pflag.CommandLine)
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine)
	pflag.Parse()
	err := logsv1.ValidateAndApply(log, nil)
	if err == nil {
		ctrl.SetLogger(klog.Background())
		err = run(ctrl.SetupSignalHandler(), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "capi-dev:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port of the webhook server.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "", "Directory with tls.crt and tls.key.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the health endpoint.")
	fs.StringVar(&o.diagnostics, "diagnostics-address", "0", "Address of the metrics endpoint, served in the clear; 0 for none.")
	fs.IntVar(&o.concurrency, "concurrency", 50, "How many objects of a kind are reconciled at once.")
	fs.StringVar(&o.host, "inmemory-host", "127.0.0.1", "Address under which the in-memory API servers are reached.")
	fs.Int32Var(&o.minPort, "inmemory-min-port", inmemoryserver.DefaultMinPort, "First port of the in-memory API servers.")
	fs.Int32Var(&o.maxPort, "inmemory-max-port", inmemoryserver.DefaultMaxPort, "Last port of the in-memory API servers.")
	feature.MutableGates.AddFlag(fs)
	fs.Int32Var(&o.dbgPort, "inmemory-debug-port", inmemoryserver.DefaultDebugPort, "Port that lists the in-memory API servers.")
}

func run(ctx context.Context, o options) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 200, 400
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 managementScheme(),
		HealthProbeBindAddress: o.healthAddr,
		Metrics:                metricsserver.Options{BindAddress: o.diagnostics},
		WebhookServer:          webhook.NewServer(webhook.Options{Port: o.webhookPort, CertDir: o.webhookCertDir}),
	})
	if err != nil {
		return fmt.Errorf("making manager: %w", err)
	}
	if err := addWebhooks(mgr); err != nil {
		return fmt.Errorf("adding webhooks: %w", err)
	}
	if err := addReconcilers(ctx, mgr, o); err != nil {
		return fmt.Errorf("adding reconcilers: %w", err)
	}
	return mgr.Start(ctx)
}

func addWebhooks(mgr ctrl.Manager) error {
	for _, w := range []interface{ SetupWebhookWithManager(ctrl.Manager) error }{
		&webhooks.DevMachine{}, &webhooks.DevMachineTemplate{}, &webhooks.DevCluster{}, &webhooks.DevClusterTemplate{},
	} {
		if err := w.SetupWebhookWithManager(mgr); err != nil {
			return err
		}
	}
	return mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker())
}

func addReconcilers(ctx context.Context, mgr ctrl.Manager, o options) error {
	opts := controller.Options{MaxConcurrentReconciles: o.concurrency}
	cc, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: mgr.GetClient(),
		Client:       clustercache.ClientOptions{QPS: 20, Burst: 30, UserAgent: "capi-dev"},
		// Only the container backend connects to workload clusters.
		ClusterFilter: func(*clusterv1.Cluster) bool { return false },
	}, opts)
	if err != nil {
		return err
	}
	// The client connects at its first call, and the in-memory backend makes none.
	containers, err := container.NewDockerClient()
	if err != nil {
		return err
	}
	memory := inmemoryruntime.NewManager(inMemoryScheme())
	if err := memory.Start(ctx); err != nil {
		return err
	}
	mux, err := inmemoryserver.NewWorkloadClustersMux(memory, o.host,
		inmemoryserver.CustomPorts{MinPort: o.minPort, MaxPort: o.maxPort, DebugPort: o.dbgPort})
	if err != nil {
		return err
	}
	return setUp(ctx, mgr, opts, reconcilers(mgr.GetClient(), containers, cc, memory, mux))
}

// reconciler is the common interface of the dev provider's reconcilers.
type reconciler interface {
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
}

func reconcilers(c client.Client, containers container.Runtime, cc clustercache.ClusterCache, memory inmemoryruntime.Manager, mux *inmemoryserver.WorkloadClustersMux) []reconciler {
	return []reconciler{
		&controllers.DevClusterReconciler{Client: c, ContainerRuntime: containers, InMemoryManager: memory, APIServerMux: mux},
		&controllers.DevMachineReconciler{Client: c, ContainerRuntime: containers, ClusterCache: cc, InMemoryManager: memory, APIServerMux: mux},
		&controllers.DevMachineTemplateReconciler{Client: c, ContainerRuntime: containers},
	}
}

func setUp(ctx context.Context, mgr ctrl.Manager, opts controller.Options, rs []reconciler) error {
	for _, r := range rs {
		if err := r.SetupWithManager(ctx, mgr, opts); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Command plane-infrastructure is an infrastructure, bootstrap and control plane
// provider for tests. Its Machines are Nodes of a control plane that runs
// already: simulated ones, or a kubelet and a container runtime on this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/controllers"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/crd"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/remote"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/simulation"
)

// options are the flags of the command.
type options struct {
	health, metrics, bin, dir string
	concurrency               int
}

func main() {
	if err := dispatch(); err != nil {
		fmt.Fprintln(os.Stderr, "plane-infrastructure:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func dispatch() error {
	if len(os.Args) == 3 && os.Args[1] == "node" {
		return realnode.Warden(os.Args[2], os.Stdin)
	}
	var o options
	flag.StringVar(&o.health, "health-addr", ":9440", "Address of the health endpoint.")
	flag.StringVar(&o.metrics, "diagnostics-address", "0", "Address of the metrics endpoint, served in the clear; 0 for none.")
	flag.StringVar(&o.bin, "bin", "", "Directory with the programs of real nodes.")
	flag.StringVar(&o.dir, "dir", "", "Directory for what real nodes write.")
	flag.IntVar(&o.concurrency, "concurrency", 20, "How many objects of a kind are reconciled at once.")
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	return run(ctrl.SetupSignalHandler(), o)
}

func run(ctx context.Context, o options) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	cfg.QPS, cfg.UserAgent = -1, "plane-infrastructure"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, crd.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: o.health, Metrics: metricsserver.Options{BindAddress: o.metrics},
	})
	if err != nil {
		return fmt.Errorf("making manager: %w", err)
	}
	kubeconfigs := &remote.Kubeconfigs{Reader: mgr.GetAPIReader()}
	nodes := &realnode.Backend{Bin: o.bin, Dir: o.dir, Kubeconfigs: kubeconfigs}
	defer nodes.Close()
	err = controllers.SetupWithManager(mgr, controllers.Options{
		Concurrency: o.concurrency, Kubeconfigs: kubeconfigs,
		Backends: map[infrav1.Backend]controllers.Backend{
			infrav1.Simulated: &simulation.Backend{Context: ctx, Kubeconfigs: kubeconfigs},
			infrav1.Real:      nodes,
		},
	})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// SPDX-License-Identifier: Apache-2.0

// Command manager runs the controllers and webhooks of 5-Spot for Cluster API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers"
)

// version is set by the linker for releases.
var version = "unknown"

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "manager: %v\n", err)
		os.Exit(1)
	}
}

// run parses args, wires the manager and runs it until ctx ends.
func run(ctx context.Context, args []string) error {
	o, fs := newOptions(), pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.AddFlags(fs)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(runtimev1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))

	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the management cluster: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.UserAgent = remote.DefaultClusterAPIUserAgent(controllers.ManagerName)
	options, err := o.manager(scheme)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("creating manager: %w", err)
	}
	if o.controllers.ReclaimAgentImage, err = agentImage(ctx, mgr.GetAPIReader(), o); err != nil {
		return fmt.Errorf("finding the image of the reclaim agent: %w", err)
	}
	o.controllers.Version = version
	o.controllers.RuntimeExtension = o.registration()
	if err := controllers.SetupWithManager(ctx, mgr, o.controllers); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	ready := mgr.GetWebhookServer().StartedChecker()
	if err := errors.Join(mgr.AddReadyzCheck("webhook", ready), mgr.AddHealthzCheck("webhook", ready)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

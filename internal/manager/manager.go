// SPDX-License-Identifier: Apache-2.0

// Package manager builds and runs the manager: flags, scheme, cache options, webhook server, controllers and
// the actuation gate. The command, benchmarks and test suites all start the manager through it.
package manager

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/feature"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
)

// Scheme returns a scheme with every kind that the manager uses as a Go type.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(runtimev1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(expv1.AddToScheme(scheme))
	utilruntime.Must(evictionv1.AddToScheme(scheme))
	return scheme
}

// Run runs the manager with options o until ctx ends. It may be called once per process, because the log
// options are global.
func Run(ctx context.Context, o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	gate, err := o.gate()
	if err != nil {
		return err
	}
	defer flush(ctx, gate)
	mgr, err := o.newManager(ctx, gate)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newManager builds the manager without starting it.
func (o *Options) newManager(ctx context.Context, gate *actuate.Gate) (ctrl.Manager, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.UserAgent = remote.DefaultClusterAPIUserAgent(controllers.ManagerName)
	config.Wrap(gate.Transport)
	ours := o.Clock
	if ours == nil {
		ours = clock.RealClock{}
	}
	apiClock := apiclock.New(ours)
	config.Wrap(apiClock.Transport)
	options, err := o.manager(Scheme())
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("creating manager: %w", err)
	}
	all := o.controllers
	if all.ReclaimAgentImage, err = installedImage(ctx, mgr.GetAPIReader(), o.pod, all.ReclaimAgentImage); err != nil {
		return nil, fmt.Errorf("finding the image of the reclaim agent: %w: set --reclaim-agent-image", err)
	}
	if feature.Gates.Enabled(feature.EvictionGuard) {
		if all.EvictionGuardImage, err = installedImage(ctx, mgr.GetAPIReader(), o.pod, all.EvictionGuardImage); err != nil {
			return nil, fmt.Errorf("finding the image of the eviction guard: %w: set --eviction-guard-image", err)
		}
	}
	all.Clock, all.Version, all.Gate, all.RuntimeExtension = o.Clock, o.Version, gate, o.registration()
	all.Lease, all.APIClock = o.lease(), apiClock
	if err := controllers.SetupWithManager(ctx, mgr, all); err != nil {
		return nil, fmt.Errorf("setting up: %w", err)
	}
	ready := mgr.GetWebhookServer().StartedChecker()
	return mgr, errors.Join(mgr.AddReadyzCheck("webhook", ready), mgr.AddHealthzCheck("webhook", ready))
}

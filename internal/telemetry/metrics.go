// SPDX-License-Identifier: Apache-2.0

// Package telemetry answers one question: what does the manager tell of itself,
// whichever controller does the work? What the fleet does is told by the controllers.
package telemetry

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var (
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_reconcile_failures_total",
		Help: "Times a step of a controller failed and was retried with back-off.",
	}, []string{"controller"})
	build = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fivespot_build_info",
		Help: "1, labelled with the version of the manager and the Go version that it was built with.",
	}, []string{"version", "goversion"})
)

// Register registers the metrics of this package, and says which version this is.
func Register(registry prometheus.Registerer, version string) error {
	for _, c := range []prometheus.Collector{failures, build} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	build.WithLabelValues(version, runtime.Version()).Set(1)
	return nil
}

// Counted returns a reconciler that does what r does, and counts the errors that it
// returns as failures of that controller. It counts from zero, so that the first
// failure is an increase.
func Counted(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	failed := failures.WithLabelValues(controller)
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if err != nil {
			failed.Inc()
		}
		return result, err
	})
}

// Failed counts a failure of a controller that tries again by itself.
func Failed(controller string) { failures.WithLabelValues(controller).Inc() }

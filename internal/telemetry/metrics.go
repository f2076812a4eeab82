// SPDX-License-Identifier: Apache-2.0

// Package telemetry has the metrics of the manager that do not belong to one controller, and helpers for
// metrics and Events of controllers. Each controller has its own metrics of the fleet.
package telemetry

import (
	"context"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
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
	paused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fivespot_actuation_paused",
		Help: "1 while actuation is paused in this manager, otherwise 0.",
	})
	dryRun = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fivespot_dry_run",
		Help: "1 while this manager only reports what it would do, otherwise 0.",
	})
	actions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_actions_total",
		Help: "Writes to objects of machines, by kind of action and outcome.",
	}, []string{"kind", "outcome"})
	suppressed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_actions_suppressed_total",
		Help: "Writes that were not sent because actuation is paused, by kind of action. Each reconcile counts them again.",
	}, []string{"kind"})
	wouldAct = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_actions_dryrun_total",
		Help: "Writes that the manager would send without --dry-run, by kind of action. Each reconcile counts them again.",
	}, []string{"kind"})
	skew = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fivespot_clock_skew_seconds",
		Help: "How far the manager's clock is ahead of the API server's at least, or by how much it was set in the last 5 minutes if that is more; negative if it is behind. 0 if it may be right.",
	})
	rejected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_records_rejected_total",
		Help: "Rejected reports, each counted when it comes: node_ref, provider_id and machine_id of a Machine, annotation of a Node, ack of a creation.",
	}, []string{"reason"})
	auditErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_audit_write_errors_total",
		Help: "Lines of the decision audit log that could not be written and are lost.",
	})
)

// Register registers the metrics of this package and sets the build info.
func Register(registry prometheus.Registerer, version string) error {
	for _, c := range []prometheus.Collector{failures, build, paused, dryRun, actions, suppressed, wouldAct, auditErrors, skew, rejected} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	for _, r := range ingest.Reasons { // The counters start at zero, so that the first increase is visible.
		rejected.WithLabelValues(string(r))
	}
	for _, kind := range audit.Kinds {
		suppressed.WithLabelValues(string(kind))
		wouldAct.WithLabelValues(string(kind))
		for _, outcome := range audit.Outcomes {
			actions.WithLabelValues(string(kind), string(outcome))
		}
	}
	build.WithLabelValues(version, runtime.Version()).Set(1)
	return nil
}

// Counted wraps a reconciler and counts its errors as failures of that controller. It sets the counter to zero,
// so that the first failure is visible as an increase.
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

// Failed counts a failure of a controller that retries by itself.
func Failed(controller string) { failures.WithLabelValues(controller).Inc() }

// Gated sets the gauges for an actuation pause and for dry run.
func Gated(isPaused, isDryRun bool) {
	paused.Set(number(isPaused))
	dryRun.Set(number(isDryRun))
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Acted counts a write.
func Acted(kind, outcome string) { actions.WithLabelValues(kind, outcome).Inc() }

// Suppressed counts a write that an actuation pause suppresses.
func Suppressed(kind string) { suppressed.WithLabelValues(kind).Inc() }

// WouldAct counts a write that dry run suppresses.
func WouldAct(kind string) { wouldAct.WithLabelValues(kind).Inc() }

// ClockSkew records how far the clock of this process is ahead.
func ClockSkew(ahead time.Duration) { skew.Set(ahead.Seconds()) }

// Rejected counts a rejected report.
func Rejected(r ingest.Reason) { rejected.WithLabelValues(string(r)).Inc() }

// AuditFailed counts a lost line of the decision audit log.
func AuditFailed() { auditErrors.Inc() }

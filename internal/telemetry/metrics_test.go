// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
)

func TestFailuresAndBuildInfo(t *testing.T) {
	failures.Reset()
	registry := prometheus.NewRegistry()
	if err := Register(registry, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	answers := []error{nil, broken, nil, broken}
	counted := Counted("one", reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		err := answers[0]
		answers = answers[1:]
		return ctrl.Result{RequeueAfter: 7}, err
	}))
	Counted("never", nil)
	for _, want := range answers {
		if res, err := counted.Reconcile(t.Context(), ctrl.Request{}); !errors.Is(err, want) || res.RequeueAfter != 7 {
			t.Errorf("what a reconciler answers is not changed: %v, %v", res, err)
		}
	}
	Failed("two")
	const want = `# HELP fivespot_reconcile_failures_total Times a step of a controller failed and was retried with back-off.
# TYPE fivespot_reconcile_failures_total counter
fivespot_reconcile_failures_total{controller="never"} 0
fivespot_reconcile_failures_total{controller="one"} 2
fivespot_reconcile_failures_total{controller="two"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fivespot_reconcile_failures_total"); err != nil {
		t.Error(err)
	}
	wantBuild := fmt.Sprintf(`# HELP fivespot_build_info 1, labelled with the version of the manager and the Go version that it was built with.
# TYPE fivespot_build_info gauge
fivespot_build_info{goversion=%q,version="v1.2.3"} 1
`, runtime.Version())
	if err := testutil.GatherAndCompare(registry, strings.NewReader(wantBuild), "fivespot_build_info"); err != nil {
		t.Error(err)
	}
}

func TestGatesAreReported(t *testing.T) {
	for _, tc := range []struct {
		paused, dryRun bool
		want           [2]float64
	}{{false, false, [2]float64{0, 0}}, {true, false, [2]float64{1, 0}}, {false, true, [2]float64{0, 1}}, {true, true, [2]float64{1, 1}}} {
		Gated(tc.paused, tc.dryRun)
		if got := [2]float64{testutil.ToFloat64(paused), testutil.ToFloat64(dryRun)}; got != tc.want {
			t.Errorf("paused %t, dry run %t: %v", tc.paused, tc.dryRun, got)
		}
	}
}

// TestCountersStartAtZero checks the counters with known label values.
func TestCountersStartAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := Register(registry, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"fivespot_actions_total": len(audit.Kinds) * len(audit.Outcomes), "fivespot_actions_suppressed_total": len(audit.Kinds),
		"fivespot_actions_dryrun_total": len(audit.Kinds), "fivespot_records_rejected_total": len(ingest.Reasons),
	} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%s has %d series, want %d: %v", name, got, want, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestTheManagerTellsOfItself(t *testing.T) {
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
	families, err := registry.Gather()
	if err != nil || len(families) != 2 || families[0].GetName() != "fivespot_build_info" ||
		families[0].GetMetric()[0].GetLabel()[1].GetValue() != "v1.2.3" || families[0].GetMetric()[0].GetGauge().GetValue() != 1 {
		t.Errorf("build info: %v, %v", families, err)
	}
}

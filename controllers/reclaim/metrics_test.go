// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// gather calls each for all series of a collector.
func gather(t *testing.T, c prometheus.Collector, each func(*dto.Metric)) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			each(m)
		}
	}
}

// label returns the value of a label of a series.
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// measured returns how many requests were measured at each stage, and the sums of the times.
func measured(t *testing.T) (counts map[string]uint64, seconds map[string]float64) {
	t.Helper()
	counts, seconds = map[string]uint64{}, map[string]float64{}
	gather(t, reclaim.Latency, func(m *dto.Metric) {
		counts[label(m, "stage")] += m.GetHistogram().GetSampleCount()
		seconds[label(m, "stage")] += m.GetHistogram().GetSampleSum()
	})
	return counts, seconds
}

// TestEveryRequestIsMeasured checks that each stage is counted once for each kind of request.
func TestEveryRequestIsMeasured(t *testing.T) {
	for name, ask := range map[string]func(*world){
		"Agent":  func(w *world) { w.annotate("true") },
		"Person": (*world).askAsPerson,
		"ByHand": func(w *world) { // like kubectl annotate node
			w.Edit(w.node, func() {
				w.node.Annotations = map[string]string{reclaimapi.RequestedAnnotation: "true"}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before, beforeSum := measured(t)
			ask(w)
			w.settle()
			w.clock.SetTime(w.clock.Now().Add(7 * time.Second))
			w.gone()
			w.settle()
			after, sum := measured(t)
			for _, stage := range []string{"seen", "deleted", "gone"} {
				if got := after[stage] - before[stage]; got != 1 {
					t.Errorf("%s is measured %d times", stage, got)
				}
			}
			if took := sum["gone"] - beforeSum["gone"]; name == "ByHand" && took != 7 {
				t.Errorf("gone after %v s, want 7", took)
			}
		})
	}
}

// TestTheSeriesOfAClusterStartAtZeroAndGoWithIt also serves a request after the Cluster is gone.
func TestTheSeriesOfAClusterStartAtZeroAndGoWithIt(t *testing.T) {
	w := newWorld(t)
	lab := client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}
	series := func() (n int) {
		for _, c := range []prometheus.Collector{reclaim.Reclaims, reclaim.Latency} {
			gather(t, c, func(m *dto.Metric) {
				if label(m, "namespace") == lab.Namespace && label(m, "cluster") == lab.Name {
					n++
				}
			})
		}
		return n
	}
	reclaim.StartClusterSeries(lab)
	if got := series(); got != 4 {
		t.Errorf("%d series from the start, want the counter and 3 stages", got)
	}
	w.annotate("true")
	w.settle()
	w.gone()
	reclaim.RemoveClusterSeries(lab)
	w.Must(w.Client.Delete(t.Context(), testenv.Cluster(lab.Namespace)))
	w.settle()
	if got := series(); w.sm.ScheduleEnabled() || got != 0 {
		t.Errorf("served: %t; %d series of a Cluster that is gone", !w.sm.ScheduleEnabled(), got)
	}
}

func TestReclaimsAreCountedByCluster(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	w.settle()
	w.gone()
	w.settle()
	if got := testutil.ToFloat64(reclaim.Reclaims.WithLabelValues(w.sm.Namespace, "lab")); got != 1 {
		t.Errorf("%v reclaims of %s/lab, want 1", got, w.sm.Namespace)
	}
	problems, err := testutil.CollectAndLint(reclaim.Reclaims)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

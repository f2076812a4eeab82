// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
)

// gather calls for each sample of a collector, with the value of its last label.
func gather(t *testing.T, c prometheus.Collector, each func(label string, count uint64, sum float64)) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := m.GetLabel()
			each(labels[len(labels)-1].GetValue(), m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
		}
	}
}

// measured is how many requests were measured at each stage, and the sum of the times.
func measured(t *testing.T) (counts map[string]uint64, seconds map[string]float64) {
	t.Helper()
	counts, seconds = map[string]uint64{}, map[string]float64{}
	gather(t, reclaim.Latency, func(stage string, count uint64, sum float64) {
		counts[stage], seconds[stage] = count, sum
	})
	return counts, seconds
}

// TestEveryRequestIsMeasured counts each stage once, whoever asks.
func TestEveryRequestIsMeasured(t *testing.T) {
	for name, ask := range map[string]func(*world){
		"Agent":  func(w *world) { w.ask("true") },
		"Person": (*world).askAsPerson,
		"ByHand": func(w *world) { // as kubectl annotate node
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

func TestReclaimsAreCountedByCluster(t *testing.T) {
	w := newWorld(t)
	w.ask("true")
	w.settle()
	w.gone()
	w.settle()
	if got := testutil.ToFloat64(reclaim.Reclaims.WithLabelValues(w.sm.Namespace, "lab")); got != 1 {
		t.Errorf("%v reclaims of %s/lab, want 1", got, w.sm.Namespace)
	}
	reclaim.ForgetCluster(client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"})
	problems, err := testutil.CollectAndLint(reclaim.Reclaims)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	gather(t, reclaim.Reclaims, func(namespace string, _ uint64, _ float64) {
		if namespace == w.sm.Namespace {
			t.Error("a Cluster that is gone is still counted")
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestOnlyOneStateIsReported(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(states); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{}
	r.report(t.Context(), Refused, nil)
	r.report(t.Context(), Registered, nil)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	m := families[0].GetMetric()[0]
	if m.GetGauge().GetValue() != 1 || m.GetLabel()[0].GetValue() != string(Registered) {
		t.Errorf("%v", m)
	}
}

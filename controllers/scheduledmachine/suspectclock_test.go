// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// hears returns a response of the API server that shows that the manager's clock is ahead.
func (w *world) hears(ahead time.Duration) {
	w.Helper()
	testenv.SampleClock(w.Context(), w.T, w.r.APIClock.Transport, w.clock.Now().Add(-ahead))
}

// TestNoMachineJoinsWhileTheClockIsSuspect uses a manager whose clock is an hour ahead.
func TestNoMachineJoinsWhileTheClockIsSuspect(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(time.Minute))
	w.r.APIClock = apiclock.New(w.clock)
	w.hears(time.Hour)
	if again := w.settle(); again != rails.Apart {
		t.Errorf("it looks again in %v", again)
	}
	w.want(v1alpha1.PhasePending, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ClockSuspectReason)
	if _, made := w.bootstrap(); made {
		t.Error("it joins")
	}
	w.Writes = nil
	w.settle()
	if len(w.Writes) > 0 {
		t.Errorf("wrote %v while nothing changed", w.Writes)
	}
	for range 3 {
		w.hears(0)
	}
	w.settle()
	if _, made := w.machine(); !made {
		t.Error("it does not join once the clocks agree")
	}
}

// TestAClockThatIsSetDuringAReconcileIsSuspect shows that the clock is wrong while the objects are read. The schedule
// is evaluated after that, by the wrong clock.
func TestAClockThatIsSetDuringAReconcileIsSuspect(t *testing.T) {
	w := newWorld(t, nil)
	set := func() {}
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, read := obj.(*clusterv1.Machine); read {
			set()
		}
		return c.Get(ctx, key, obj, opts...)
	}}))
	w.r.APIClock = apiclock.New(w.clock)
	w.settle()
	w.clock.SetTime(monday.Add(time.Minute))
	set = func() { w.hears(time.Hour) }
	w.reconcile()
	if _, made := w.bootstrap(); made {
		t.Error("it joins")
	}
}

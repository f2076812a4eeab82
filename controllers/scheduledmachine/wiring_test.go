// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// run runs the controller in a manager with the given sync period.
func (w *world) run(again time.Duration) {
	w.Helper()
	registry := metrics.Registry // A registry accepts each metric once.
	metrics.Registry = prometheus.NewRegistry()
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: w.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{SyncPeriod: &again, DefaultNamespaces: map[string]cache.Config{w.sm.Namespace: {}}},
	})
	w.Must(err)
	w.Must(scheduledmachine.AddIndexes(w.Context(), mgr))
	c := mgr.GetClient()
	r := &scheduledmachine.Reconciler{
		Clock: w.clock, Reader: c, Live: mgr.GetAPIReader(), Actuate: actuate.New(c), Recorder: w.recorder, ReclaimTracker: &wake.ReclaimTracker{},
		Children:     children.Reader{Cached: c, Live: mgr.GetAPIReader()},
		ClusterCache: clustercache.NewFakeClusterCache(w.Client, client.ObjectKeyFromObject(w.cluster)),
	}
	w.Must(r.SetupWithManager(mgr, "", controller.Options{SkipNameValidation: new(true)}))
	ctx, stop := context.WithCancel(w.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			w.Errorf("running manager: %v", err)
		}
	})
	w.Cleanup(func() { stop(); ended.Wait(); metrics.Registry = registry })
}

// becomes waits until so returns true.
func (w *world) becomes(what string, so func() bool) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return so(), nil
	})
	if err != nil {
		w.Fatalf("%s: phase %s", what, w.sm.Status.Phase)
	}
}

// TestAClockThatWasSetIsCaughtUpWith suspends the manager's host until the window is open. The timer for the edge still
// has an hour; the next resync detects the change.
func TestAClockThatWasSetIsCaughtUpWith(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(-time.Hour))
	w.run(time.Second)
	w.becomes("nothing is wanted yet", func() bool { w.Read(w.sm); return w.sm.Status.Phase == v1alpha1.PhaseInactive })
	w.clock.SetTime(monday.Add(time.Minute))
	w.becomes("the machine joins", func() bool { _, made := w.machine(); w.Read(w.sm); return made })
}

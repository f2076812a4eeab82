// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// run runs the controller in a manager.
func (w *departureWorld) run() {
	w.Helper()
	registry := metrics.Registry // A registry accepts each metric once.
	metrics.Registry = prometheus.NewRegistry()
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: w.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.sm.Namespace: {}}},
	})
	w.Must(err)
	w.Must(index.AddDefaultIndexes(w.Context(), mgr))
	w.Must(scheduledmachine.AddIndexes(w.Context(), mgr))
	c := mgr.GetClient()
	r := &node.Reconciler{
		Clock: w.clock, Reader: c, Actuate: actuate.New(c), Children: children.Reader{Cached: c, Live: mgr.GetAPIReader()}, Lead: 10 * time.Minute,
		ClusterCache: clustercache.NewFakeClusterCache(w.client(), client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}, node.NodesWatch),
	}
	w.Must(r.SetupWithManager(mgr, "", scheduledmachine.ClusterNameIndex, controller.Options{SkipNameValidation: new(true)}))
	ctx, stop := context.WithCancel(w.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			w.Errorf("running manager: %v", err)
		}
	})
	w.Cleanup(func() { stop(); ended.Wait(); metrics.Registry = registry })
}

// says waits until the Node has a condition with a reason.
func (w *departureWorld) says(reason string) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		w.Read(w.node) //nolint:contextcheck // a Fixture has the context of its test
		return slices.ContainsFunc(w.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Reason == reason }), nil
	})
	if err != nil {
		w.Fatalf("it does not say %s: %v", reason, w.node.Status.Conditions)
	}
}

// TestItIsWokenByTimeAndByTheMachine checks that the requeue and Machine events trigger reconciles.
func TestItIsWokenByTimeAndByTheMachine(t *testing.T) {
	w := newDepartureWorld(t)
	w.clock.SetTime(five.Add(-10*time.Minute - 2*time.Second))
	w.run()
	time.Sleep(time.Second) // It has reconciled, and waits for its requeue.
	w.clock.SetTime(five.Add(-10 * time.Minute))
	w.says(v1alpha1.NodeWindowClosesReason)
	w.admit(v1alpha1.WindowClosed)
	w.says(v1alpha1.NodeLeavesReason)
	w.drains(false, false)
	w.drains(true, true)
	w.says(v1alpha1.NodeDrainedReason)
}

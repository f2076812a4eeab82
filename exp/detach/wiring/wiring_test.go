// SPDX-License-Identifier: Apache-2.0

// Package wiring_test runs a manager with the controllers of package detach.
package wiring_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// requestCounter counts the requests to a load balancer without members.
type requestCounter struct{ times atomic.Int32 }

func (a *requestCounter) For(*expv1.LoadBalancer) (balancer.Driver, error) { return a, nil }
func (*requestCounter) Forget(types.NamespacedName)                        {}
func (a *requestCounter) Discover(context.Context, balancer.Node) ([]balancer.Membership, error) {
	a.times.Add(1)
	return nil, nil
}

func (*requestCounter) Status(context.Context, []balancer.Membership) ([]balancer.Status, error) {
	return nil, nil
}
func (*requestCounter) Elsewhere(balancer.Node, balancer.Membership) bool    { return false }
func (*requestCounter) Drain(context.Context, []balancer.Membership) error   { return nil }
func (*requestCounter) Restore(context.Context, []balancer.Membership) error { return nil }
func (*requestCounter) Every() time.Duration                                 { return time.Second }
func (*requestCounter) Volatile() bool                                       { return true }

// TestClusterThatMovesToAnotherManagerIsReconciled moves a Cluster with a detached Node to another manager, as
// docs/sharding.md describes, or unpauses it, as a control.
func TestClusterThatMovesToAnotherManagerIsReconciled(t *testing.T) {
	for name, tc := range map[string]struct{ before, after func(*clusterv1.Cluster) }{
		"Unpaused": {
			func(c *clusterv1.Cluster) {
				c.Labels, c.Spec.Paused = map[string]string{clusterv1.WatchLabel: "b"}, new(true)
			},
			func(c *clusterv1.Cluster) { c.Spec.Paused = new(false) },
		},
		"Relabelled": {
			func(c *clusterv1.Cluster) { c.Labels = map[string]string{clusterv1.WatchLabel: "a"} },
			func(c *clusterv1.Cluster) { c.Labels[clusterv1.WatchLabel] = "b" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := server.Fixture(t)
			ns := server.Namespace(t)
			c := testenv.Cluster(ns)
			tc.before(c)
			lb := &expv1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "edge"}}
			lb.Spec.ClusterName, lb.Spec.Label = c.Name, &expv1.LabelBalancer{}
			a := &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lab.box", Labels: map[string]string{clusterv1.ClusterNameLabel: c.Name}}}
			a.Spec.ClusterName, a.Spec.NodeName, a.Spec.Trigger = c.Name, "box", "Departure"
			f.Create(c, lb, a)
			a.Status.LoadBalancers = []expv1.BalancerProgress{{Name: "edge", Phase: expv1.PhaseDraining, Message: "box has 3 connections"}} // The state that the previous manager reported.
			f.Must(f.Client.Status().Update(t.Context(), a))

			registry := metrics.Registry // It accepts each metric once.
			metrics.Registry = prometheus.NewRegistry()
			mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
				Scheme: f.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
				Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}, SyncPeriod: new(2 * time.Second)},
			})
			f.Must(err)
			var d requestCounter
			f.Must((&detach.BalancerReconciler{
				Clock: clock.RealClock{}, Reader: mgr.GetClient(), Live: mgr.GetAPIReader(), Actuate: actuate.New(mgr.GetClient()),
				Recorder: &events.FakeRecorder{}, Drivers: &d, WatchFilter: "b",
			}).SetupWithManager(mgr, controller.Options{SkipNameValidation: new(true)}))
			ctx, stop := context.WithCancel(t.Context())
			var ended sync.WaitGroup
			ended.Go(func() { _ = mgr.Start(ctx) })
			t.Cleanup(func() { stop(); ended.Wait(); metrics.Registry = registry })
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				t.Fatal("no cache")
			}
			time.Sleep(3 * time.Second)
			if d.times.Load() > 0 {
				t.Fatal("it is another manager's")
			}
			f.Edit(c, func() { tc.after(c) })
			for range 100 {
				if time.Sleep(100 * time.Millisecond); d.times.Load() > 0 {
					return
				}
			}
			t.Error("nobody asks the load balancer, although the caches deliver every object again each 2 s")
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
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

// screening signals when the controller lists the Machines that name one host.
type screening struct {
	client.Reader
	asked chan<- struct{}
}

func (s screening) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := s.Reader.List(ctx, list, opts...)
	if _, machines := list.(*clusterv1.MachineList); machines {
		select {
		case s.asked <- struct{}{}:
		default:
		}
	}
	return err
}

// run runs the controller in a manager, and returns after it has screened the machine.
func (w *world) run() {
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
	c, asked := mgr.GetClient(), make(chan struct{}, 1)
	r := &node.Reconciler{
		Clock: w.clock, Reader: c, Actuate: actuate.New(c), ClusterCache: w.cache, Installs: true, Recorder: w.recorder,
		Children: children.Reader{Cached: screening{c, asked}, Live: mgr.GetAPIReader()},
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
	<-asked
}

// TestTheEndOfARivalWakes checks that the deletion of a Machine triggers the other Machine of the same Node.
func TestTheEndOfARivalWakes(t *testing.T) {
	w := joined(t)
	rival := w.rival()
	w.runAgent("java")
	w.want("", "", "")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.want(metav1.ConditionUnknown, "NodeNotBelieved", "", written...)
	w.run()
	w.Must(w.Client.Delete(t.Context(), rival))
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		w.Read(w.sm) //nolint:contextcheck // a Fixture has the context of its test
		return conditions.IsTrue(w.sm, v1alpha1.OwnerProtectedCondition), nil
	})
	if err != nil {
		t.Errorf("nobody was woken: %+v", conditions.Get(w.sm, v1alpha1.OwnerProtectedCondition))
	}
}

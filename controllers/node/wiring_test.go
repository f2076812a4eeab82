// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
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
func run(f *testenv.Fixture, sm *v1alpha1.ScheduledMachine, workload clustercache.ClusterCache, r *node.Reconciler) {
	f.Helper()
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: f.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{sm.Namespace: {}}},
	})
	f.Must(err)
	f.Must(index.AddDefaultIndexes(f.Context(), mgr))
	f.Must(scheduledmachine.AddIndexes(f.Context(), mgr))
	c, asked := mgr.GetClient(), make(chan struct{}, 1)
	r.Reader, r.Actuate, r.ClusterCache = c, actuate.New(c), workload
	r.Children = children.Reader{Cached: screening{c, asked}, Live: mgr.GetAPIReader()}
	f.Must(r.SetupWithManager(mgr, "", controller.Options{SkipNameValidation: new(true)}))
	ctx, stop := context.WithCancel(f.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			f.Errorf("running manager: %v", err)
		}
	})
	f.Cleanup(func() { stop(); ended.Wait() })
	<-asked
}

// until waits until done returns true.
func until(f *testenv.Fixture, what string, done func() bool) {
	f.Helper()
	if err := wait.PollUntilContextTimeout(f.Context(), 20*time.Millisecond, 30*time.Second, true,
		func(context.Context) (bool, error) { return done(), nil }); err != nil {
		f.Fatalf("it does not happen: %s", what)
	}
}

// TestTheInstallationWakes checks that the result of the installation triggers a reconcile.
func TestTheInstallationWakes(t *testing.T) {
	w := named(t)
	run(w.Fixture, w.sm, w.cache, &node.Reconciler{Clock: w.clock, Installs: true, Recorder: w.recorder})
	time.Sleep(time.Second) // It has reconciled, and waits for the result.
	w.installed("")
	until(w.Fixture, "the Node gets its label", func() bool { w.Read(w.node); return w.node.Labels[reclaim.AgentLabel] != "" })
}

// TestTheEndOfARivalWakes checks that the deletion of a Machine triggers the other Machine of the same Node.
func TestTheEndOfARivalWakes(t *testing.T) {
	w := joined(t)
	rival := w.rival()
	w.runAgent("java")
	w.want("", "", "")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.want(metav1.ConditionUnknown, "NodeRejected", "", written...)
	run(w.Fixture, w.sm, w.cache, &node.Reconciler{Clock: w.clock, Installs: true, Recorder: w.recorder})
	w.Must(w.Client.Delete(t.Context(), rival))
	until(w.Fixture, "its owner is protected", func() bool { w.Read(w.sm); return conditions.IsTrue(w.sm, v1alpha1.OwnerProtectedCondition) })
}

// TestItIsWokenByTimeAndByTheMachine checks that the requeue and Machine events trigger reconciles.
func TestItIsWokenByTimeAndByTheMachine(t *testing.T) {
	w := newDepartureWorld(t)
	w.clock.SetTime(five.Add(-10*time.Minute - 2*time.Second))
	run(w.Fixture, w.sm, clustercache.NewFakeClusterCache(w.client(), client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}, node.NodesWatch),
		&node.Reconciler{Clock: w.clock, Lead: 10 * time.Minute})
	says := func(reason string) {
		t.Helper()
		until(w.Fixture, "the Node says "+reason, func() bool {
			w.Read(w.node)
			return slices.ContainsFunc(w.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Reason == reason })
		})
	}
	time.Sleep(time.Second) // It has reconciled, and waits for its requeue.
	w.clock.SetTime(five.Add(-10 * time.Minute))
	says(v1alpha1.NodeWindowClosingReason)
	w.admit(v1alpha1.WindowClosed)
	says(v1alpha1.NodeDepartingReason)
	w.drains(false, false)
	w.drains(true, true)
	says(v1alpha1.NodeDrainedReason)
}

// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
)

func TestWhatAnOwnerWaitsForOvertakes(t *testing.T) {
	q := priorityqueue.New[ctrl.Request](t.Name())
	defer q.ShutDown()
	h := wake.PrioritizeUrgent(&handler.EnqueueRequestForObject{}, func(o client.Object) bool { return o.GetName() == "asked" })
	object := func(name string) *v1alpha1.ScheduledMachine {
		sm := &v1alpha1.ScheduledMachine{}
		sm.Name, sm.ResourceVersion = name, "1"
		return sm
	}
	h.Create(t.Context(), event.CreateEvent{Object: object("listed"), IsInInitialList: true}, q)
	later := object("changed")
	later.ResourceVersion = "2"
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("changed"), ObjectNew: later}, q)
	h.Generic(t.Context(), event.GenericEvent{Object: object("generic")}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: object("deleted")}, q)
	h.Create(t.Context(), event.CreateEvent{Object: object("asked"), IsInInitialList: true}, q)
	for i, want := range []string{"asked", "changed", "generic", "deleted", "listed"} {
		got, priority, _ := q.GetWithPriority()
		if got.Name != want {
			t.Errorf("%d: %s comes at priority %d, want %s", i, got.Name, priority, want)
		}
		q.Done(got)
	}
}

// TestAnUrgentRequestWaitsForOneWorker covers a thousand departures whose writes hang for ten seconds each, and a kill
// switch that is turned on meanwhile and fails twice.
func TestAnUrgentRequestWaitsForOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hang, retry = 10 * time.Second, time.Minute
		var served []time.Time
		opts := workers.New(clock.RealClock{}).Options(80, workers.Deadline)
		opts.SkipNameValidation = new(true)
		opts.Reconciler = reconcile.Func(func(_ context.Context, req ctrl.Request) (ctrl.Result, error) {
			if req.Name != "killed" {
				time.Sleep(hang)
				return ctrl.Result{RequeueAfter: time.Second}, nil
			}
			if served = append(served, time.Now()); len(served) < 3 {
				return ctrl.Result{RequeueAfter: retry, Priority: new(0)}, nil
			}
			return ctrl.Result{}, nil
		})
		wake.PrioritizeUrgentRequests(&opts, func(req ctrl.Request) bool { return req.Name == "killed" })
		c, err := controller.NewUnmanaged(t.Name(), opts)
		if err != nil {
			t.Fatal(err)
		}
		var add func(name string)
		if err := c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			add = func(name string) {
				req := ctrl.Request{}
				req.Name = name
				q.Add(req)
			}
			for i := range 1000 {
				add(strconv.Itoa(i))
			}
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Start(ctx) }()
		due := time.Now().Add(time.Minute)
		time.Sleep(time.Until(due))
		add("killed")
		time.Sleep(4 * retry)
		for i, at := range served {
			if wait := at.Sub(due); wait > hang {
				t.Errorf("try %d: waits %v for a worker", i, wait)
			}
			due = at.Add(retry)
		}
		if len(served) != 3 {
			t.Errorf("%d tries, want 3", len(served))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

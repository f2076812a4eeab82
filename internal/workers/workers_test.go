// SPDX-License-Identifier: Apache-2.0

package workers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
)

func request(name string) ctrl.Request {
	var req ctrl.Request
	req.Namespace, req.Name = "lab", name
	return req
}

// run runs a controller with one worker on some objects, with fake time.
func run(t *testing.T, w *workers.Watch, do reconcile.Func, objects ...string) {
	t.Helper()
	o := w.Options(1)
	o.Reconciler, o.SkipNameValidation = do, new(true)
	o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Hour, time.Hour)
	c, err := controller.NewUnmanaged(t.Name(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		for _, name := range objects {
			q.Add(request(name))
		}
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAnObjectCostsAWorkerItsDeadlineAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workers.New(clock.RealClock{})
		begin := time.Now()
		var served time.Duration
		run(t, w, func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			if req.Name == "good" {
				served = time.Since(begin)
				return ctrl.Result{}, nil
			}
			<-ctx.Done() // as a read of a kind that is never listed
			return ctrl.Result{}, ctx.Err()
		}, "bad", "good")
		time.Sleep(workers.Deadline + time.Second)
		synctest.Wait()
		if served != workers.Deadline {
			t.Errorf("the next object is served after %v, want %v", served, workers.Deadline)
		}
		if err := w.Check(nil); err != nil {
			t.Errorf("no worker is stuck: %v", err)
		}
	})
}

func TestAStuckWorkerIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workers.New(clock.RealClock{})
		free := make(chan struct{})
		run(t, w, func(context.Context, ctrl.Request) (ctrl.Result, error) {
			<-free // it ignores its deadline
			return ctrl.Result{}, errors.New("at last")
		}, "bad")
		time.Sleep(2 * workers.Deadline)
		if err := w.Check(nil); err != nil {
			t.Errorf("it may still honour its deadline: %v", err)
		}
		time.Sleep(time.Second)
		err := w.Check(nil)
		if want := "1 workers are stuck: " + t.Name() + " has been at lab/bad for 1m1s"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		close(free)
		synctest.Wait()
		if err := w.Check(nil); err != nil {
			t.Errorf("it is free again: %v", err)
		}
	})
}

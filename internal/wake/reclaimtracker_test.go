// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

func TestReportsWaitForOtherOwners(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		owners int
		asked  time.Time
		want   time.Duration
	}{
		"no owner":                 {0, now, 0},
		"its own owner":            {1, now, 0},
		"another owner":            {2, now, time.Second},
		"two hundred":              {200, now.Add(-30 * time.Second), time.Second},
		"almost long enough":       {2, now.Add(-time.Minute + time.Millisecond), time.Millisecond},
		"long enough":              {2, now.Add(-time.Minute), 0},
		"by a clock that is wrong": {2, now.Add(time.Second), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var tracker wake.ReclaimTracker
			for range tc.owners {
				defer tracker.Serve()()
			}
			if got := tracker.Wait([]time.Time{now.Add(-time.Hour), tc.asked}, now); got != tc.want {
				t.Errorf("Wait = %v; want %v", got, tc.want)
			}
		})
	}
}

func TestOneOwnerDelaysNoReport(t *testing.T) {
	var tracker wake.ReclaimTracker
	now := time.Now()
	asked := []time.Time{now}
	first, second := tracker.Serve(), tracker.Serve()
	second()
	if got := tracker.Wait(asked, now); got != 0 {
		t.Errorf("with one owner left: Wait = %v; want 0", got)
	}
	third := tracker.Serve()
	if got := tracker.Wait(nil, now); got != 0 {
		t.Errorf("without a request: Wait = %v; want 0", got)
	}
	third()
	first()
}

func TestStallsEnqueueTheirMachine(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	woken := func(want int, when string) {
		t.Helper()
		if got := q.Len(); got != want {
			t.Errorf("%s: %d objects are woken, want %d", when, got, want)
		}
		for range q.Len() {
			req, _ := q.Get()
			q.Done(req)
		}
	}
	var r wake.ReclaimTracker
	var req ctrl.Request
	req.Name = "box"
	if !r.RecordStuck(req, "Forbidden", "no, at 12:00:01") || r.StuckReason(req) == "" {
		t.Error("a stall is news")
	}
	if err := r.Stalls().Start(context.Background(), q); err != nil {
		t.Fatal(err)
	}
	woken(1, "what was known before")
	if r.RecordStuck(req, "Forbidden", "no, at 12:00:02") || r.StuckReason(req) != "no, at 12:00:01" {
		t.Errorf("the same cause has the same text, not %q", r.StuckReason(req))
	}
	woken(0, "the same again")
	if !r.RecordStuck(req, "Timeout", "too late") || r.StuckReason(req) != "too late" {
		t.Errorf("another cause is news, not %q", r.StuckReason(req))
	}
	woken(1, "another cause")
	r.ClearStuck(req)
	r.ClearStuck(req)
	woken(1, "it gets on")
	if why := r.StuckReason(req); why != "" {
		t.Errorf("still %q", why)
	}
}

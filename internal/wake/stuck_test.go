// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"context"
	"testing"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

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

// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"context"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// hears sends a response of the API server by which our clock is ahead.
func (w *world) hears(ctx context.Context, ahead time.Duration) {
	w.Helper()
	testenv.SampleClock(ctx, w.T, w.r.APIClock.Transport, w.clock.Now().Add(-ahead))
}

// TestASuspectClockHoldsAllDepartures ends windows by a clock that is an hour ahead.
func TestASuspectClockHoldsAllDepartures(t *testing.T) {
	w := newWorld(t, 40)
	w.r.APIClock = apiclock.New(w.clock)
	w.leaves(v1alpha1.ScheduledLane, 0)
	w.plan()
	w.after(lease)
	if w.plan(); len(w.begin()) != 0 || w.waits(0).Reason != v1alpha1.WarmUpReason {
		t.Errorf("before the API server has told its time: %+v", w.waits(0))
	}
	w.ahead = time.Hour
	w.hears(t.Context(), w.ahead)
	for range 5 {
		if next := w.plan(); len(w.begin()) != 0 || w.waits(0).Reason != v1alpha1.ClockSuspectReason || next != rails.Apart {
			t.Errorf("%+v, the planner asks again in %s", w.waits(0), next)
		}
		w.after(rails.Apart)
	}
	w.ahead = 0
	for range 3 {
		w.plan() // Each run requests the time.
	}
	if w.plan(); len(w.begin()) != 1 {
		t.Errorf("no machine leaves although the clock is right: %+v", w.waits(0))
	}
}

// TestAStepOfTheClockEndsNoWaitAtTheHooks sets the clock an hour ahead while two extensions hold a Machine.
func TestAStepOfTheClockEndsNoWaitAtTheHooks(t *testing.T) {
	w := newHookWorld(t, "a-lb", "b-operator")
	w.answers = map[string]int32{"a-lb": 50, "b-operator": 50}
	w.leave()
	w.settle()
	w.r.APIClock = apiclock.New(w.clock)
	right := w.clock.Now()
	w.clock.SetTime(right.Add(time.Hour))
	testenv.SampleClock(t.Context(), t, w.r.APIClock.Transport, right)
	if next := w.settle(); w.held() != "pre-drain pre-terminate" || next != rails.Apart {
		t.Errorf("held by %q: %s; it is reconciled again in %s", w.held(), w.waits(), next)
	}
	w.clock.SetTime(right.Add(10 * time.Second))
	for range 3 {
		testenv.SampleClock(t.Context(), t, w.r.APIClock.Transport, w.clock.Now())
	}
	if w.settle(); w.held() != "pre-drain pre-terminate" {
		t.Errorf("the deadline has not passed by the right clock: %s", w.waits())
	}
	w.clock.SetTime(right.Add(time.Minute))
	if w.settle(); w.held() != "pre-terminate" {
		t.Errorf("the deadline has passed: held by %q: %s", w.held(), w.waits())
	}
}

// TestAClockSetBackBeginsADepartureAnew sets the clock back by 2 minutes while an extension holds a Machine. The record of
// the departure is then in the future, so the planner admits the Machine again. Its deadline counts from that.
func TestAClockSetBackBeginsADepartureAnew(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers["a-lb"] = 50
	w.leave()
	w.settle()
	back := w.clock.Now().Add(-2 * time.Minute)
	w.clock.SetTime(back)
	w.planned = true // The planner has not admitted it again yet.
	w.settle()
	w.planned = false
	if w.settle(); w.held() != "pre-drain pre-terminate" {
		t.Fatalf("held by %q: %s", w.held(), w.waits())
	}
	w.clock.SetTime(back.Add(time.Minute))
	if w.settle(); w.held() != "pre-terminate" {
		t.Errorf("held by %q a minute after its admission: %s", w.held(), w.waits())
	}
}

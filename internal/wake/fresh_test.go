// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// begin is the start of the tests.
var begin = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func TestACacheThatIsLateIsWaitedFor(t *testing.T) {
	var f wake.Freshness
	var req, other ctrl.Request
	req.Name, other.Name = "box", "other"
	if wait := f.Wait(req, "1", begin); wait != 0 {
		t.Errorf("an object that we never wrote may be worked with, not after %v", wait)
	}
	f.Wrote(req, "1", "1")
	if wait := f.Wait(req, "1", begin); wait != 0 {
		t.Errorf("a look that wrote nothing leaves the version as good as it was, not after %v", wait)
	}
	f.Wrote(req, "1", "3")
	wants := []string{"50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "2s", "2s"}
	for _, want := range wants {
		if wait := f.Wait(req, "1", begin); wait.String() != want {
			t.Errorf("waits %v for a late cache, want %s: a busy server is asked less and less", wait, want)
		}
	}
	if wait := f.Wait(other, "1", begin); wait != 0 {
		t.Errorf("another object does not wait, not %v", wait)
	}
	if wait := f.Wait(req, "2", begin); wait == 0 {
		t.Error("a version between the two was written on the way, and has been replaced as well")
	}
	if wait := f.Wait(req, "3", begin); wait != 0 {
		t.Errorf("the version that was written last is news, not after %v", wait)
	}
	f.MarkStale(req, "9")
	for version, late := range map[string]bool{"8": true, "9": true, "10": false} {
		if wait := f.Wait(req, version, begin); wait > 0 != late {
			t.Errorf("after version 9 was replaced, version %s waits %v", version, wait)
		}
		f.MarkStale(req, "9")
	}
	f.Wrote(req, "a", "b")
	if wait := f.Wait(req, "c", begin); wait != 0 {
		t.Errorf("versions that have no order are compared as names: %v", wait)
	}
	f.Wrote(req, "2", "3")
	f.Forget(req)
	if wait := f.Wait(req, "2", begin); wait != 0 {
		t.Errorf("who is gone is forgotten, not after %v", wait)
	}
}

// TestAVersionThatStaysIsWorkedWith shows a version forever, as if it was not replaced.
func TestAVersionThatStaysIsWorkedWith(t *testing.T) {
	var f wake.Freshness
	var req ctrl.Request
	f.MarkStale(req, "1")
	now, tries := begin, 0
	for now.Before(begin.Add(time.Hour)) {
		wait := f.Hold(req, "1", now)
		if wait == 0 {
			tries++
			f.MarkStale(req, "1") // Each write is rejected.
			wait = time.Millisecond
		}
		now = now.Add(wait)
	}
	if tries < 55 || tries > 60 {
		t.Errorf("%d tries in an hour, want one a minute", tries)
	}
	f.Hold(req, "1", now)
	now = now.Add(-time.Hour)
	f.Hold(req, "1", now)
	if wait := f.Hold(req, "1", now.Add(time.Minute)); wait != 0 {
		t.Errorf("by a clock that was set back: waits %v", wait)
	}
}

func TestAConflictThatLastsCostsOneTryPerBackOff(t *testing.T) {
	var f wake.Freshness
	var req, other ctrl.Request
	req.Name, other.Name = "box", "other"
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "box", errors.New("somebody says so"))
	now, tries, heard := begin, 0, 0
	for now.Before(begin.Add(time.Hour)) {
		if wait := f.Hold(req, "1", now); wait > 0 { // An event does not shorten the wait.
			now = now.Add(wait)
			continue
		}
		tries++
		next, err := f.ResultOf(req, now, errors.Join(conflict))
		if err != nil {
			heard++
		} else if next.RequeueAfter <= 0 {
			t.Fatalf("try %d: no requeue without a wait", tries)
		}
		if wait := f.Hold(req, "2", now); wait <= 0 {
			t.Fatalf("try %d: a newer version is no reason to try again at once", tries)
		}
	}
	// Doubling from 50 ms to five minutes makes 13 tries in the first seven minutes.
	if tries != 24 || heard != tries-6 {
		t.Errorf("%d tries in an hour, %d of them heard of; want 24 and 18", tries, heard)
	}
	if wait := f.Hold(other, "1", now); wait != 0 {
		t.Errorf("another object waits %v", wait)
	}
	if _, err := f.ResultOf(req, now, errors.New("other trouble")); err == nil {
		t.Error("another error is returned as it is")
	}
	if next, err := f.ResultOf(req, now, nil); err != nil || next.RequeueAfter != 0 || f.Hold(req, "1", now) != 0 {
		t.Errorf("it is over once a write is accepted: %v, %v", next, err)
	}
}

func TestAConflictOfTheLaneIsBounded(t *testing.T) {
	f := wake.Freshness{MaxBackoff: time.Second}
	var req ctrl.Request
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	conflict := apierrors.NewConflict(schema.GroupResource{}, "box", nil)
	for range 60 {
		_, _ = f.ResultOf(req, now, conflict)
	}
	if wait := f.Hold(req, "", now); wait != time.Second {
		t.Errorf("waits %v, want a second", wait)
	}
	if wait := f.Hold(req, "", now.Add(-time.Hour)); wait != time.Second {
		t.Errorf("by a clock that was set back: waits %v, want a second", wait)
	}
	f.Forget(req)
	if wait := f.Hold(req, "", now); wait != 0 {
		t.Errorf("who is gone is forgotten, not after %v", wait)
	}
}

func TestAnEdgeEndsTheWaits(t *testing.T) {
	var f wake.Freshness
	var req ctrl.Request
	edge := begin.Add(time.Hour)
	conflict := apierrors.NewConflict(schema.GroupResource{}, "box", nil)
	fail := func() {
		for range 20 {
			_, _ = f.ResultOf(req, begin, conflict)
		}
		f.MarkStale(req, "1")
	}
	f.Input(req, 1, edge)
	fail()
	f.Input(req, 1, edge)
	if wait := f.Hold(req, "1", begin); wait != 5*time.Minute {
		t.Errorf("before the edge: waits %v, want 5m", wait)
	}
	f.Input(req, 1, edge.Add(time.Hour))
	if wait := f.Hold(req, "1", begin); wait != 0 {
		t.Errorf("after the edge: waits %v", wait)
	}
	fail()
	f.Input(req, 1, edge.Add(time.Hour))
	if wait := f.Hold(req, "1", begin); wait != 5*time.Minute {
		t.Errorf("an edge ends the waits once, not again: waits %v, want 5m", wait)
	}
	f.Input(req, 2, edge.Add(time.Hour))
	if wait := f.Hold(req, "2", begin); wait != 0 {
		t.Errorf("after an edit: waits %v", wait)
	}
}

func TestAShorterBackOffAfterConflicts(t *testing.T) {
	var f wake.Freshness
	var req ctrl.Request
	f.Shorten(req, begin)
	for range 20 {
		_, _ = f.ResultOf(req, begin, apierrors.NewConflict(schema.GroupResource{}, "box", nil))
	}
	f.Shorten(req, begin.Add(30*time.Second))
	f.Shorten(req, begin.Add(time.Hour))
	if wait := f.Hold(req, "1", begin); wait != 30*time.Second {
		t.Errorf("waits %v, want 30s", wait)
	}
}

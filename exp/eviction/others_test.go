// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// wantLetGo has db-0 be evicted until it is let go. Between two tries something happens.
func (w *world) wantLetGo(between func()) {
	w.Helper()
	for range 30 {
		said, err := w.asker.Evict(w.Context(), eviction.Wanted{Pod: client.ObjectKey{Namespace: w.ns, Name: "db-0"}})
		if err == nil && said.Answer == verdict.Allow {
			return
		}
		between()
	}
	w.Error("it is never let go")
}

// TestAPodThatMayNotBeMarked is one whose changes somebody else's admission policy refuses: it is let go
// once the operator's time is over, as its policy says.
func TestAPodThatMayNotBeMarked(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	w.pod("db-0", 0)
	w.drain(0, true)
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch Pod" {
			return apierrors.NewForbidden(corev1.Resource("pods"), "db-0", errors.New("a policy of somebody else")), nil
		}
		return nil, nil
	}
	w.wantLetGo(func() { w.pass(10 * time.Second) })
}

// TestAnOperatorThatTakesEverythingOff puts the annotations of its pods back to what it knows.
func TestAnOperatorThatTakesEverythingOff(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	p := w.pod("db-0", 0)
	w.drain(0, true)
	w.wantLetGo(func() {
		w.Edit(p, func() { p.Annotations = nil })
		w.pass(20 * time.Second)
	})
}

// TestWhoWantsTheDeadlineToBeLater writes on the pod that its operator has been asked just now.
func TestWhoWantsTheDeadlineToBeLater(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	p := w.pod("db-0", 0)
	w.drain(0, true)
	w.wantLetGo(func() {
		w.Edit(p, func() { p.Annotations[evictionv1.RequestedAnnotation] = w.clock.Now().UTC().Format(time.RFC3339) })
		w.pass(30 * time.Second)
	})
}

// TestAGuardWhoseClockWasAhead by a day asked the operator.
func TestAGuardWhoseClockWasAhead(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	w.pod("db-0", 0)
	w.drain(0, true)
	// The request bears the time of the API server.
	w.Fail = func(n int) (before, after error) {
		if n == 0 {
			return nil, testenv.ErrLost
		}
		return nil, nil
	}
	_, _ = w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKey{Namespace: w.ns, Name: "db-0"}})
	w.Fail = nil
	for _, r := range w.requests() {
		w.date(&r)
	}
	w.pass(24 * time.Hour)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.pass(-24 * time.Hour)
	w.pass(5 * time.Minute)
	w.evict("db-0", verdict.Allow, verdict.Overdue)
}

// TestAPlaceOfTomorrow is that of a request which a guard queued whose clock was ahead by a day, and that
// ended before it marked the pod.
func TestAPlaceOfTomorrow(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	w.pod("db-0", 0)
	w.pod("db-1", 0)
	w.drain(0, true)
	w.Fail = func(n int) (before, after error) {
		switch w.Writes[n] {
		case "create RescheduleRequest":
			return nil, testenv.ErrLost
		case "patch Pod":
			return testenv.ErrLost, nil
		default:
			return nil, nil
		}
	}
	_, _ = w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKey{Namespace: w.ns, Name: "db-0"}})
	for _, r := range w.requests() {
		w.date(&r)
	}
	w.pass(24 * time.Hour)
	_, _ = w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKey{Namespace: w.ns, Name: "db-0"}})
	w.Fail = nil
	w.pass(-24 * time.Hour)
	w.pass(5 * time.Minute)
	w.evict("db-1", verdict.Wait, verdict.Requested)
}

// TestAPolicyThatTheLeaderHasNotSeenYet was made just now: another guard, or a manager, has seen it.
func TestAPolicyThatTheLeaderHasNotSeenYet(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	asker := *w.asker
	asker.Policies = interceptor.NewClient(w.Client, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return nil // Of what was made a moment ago the cache has nothing yet.
		},
	})
	w.tender = &eviction.Tender{Asker: &asker}
	if fates := w.tend(); len(fates) != 1 || fates[0] != verdict.Stays {
		t.Errorf("got %v: it is withdrawn, and nobody drains it the less", fates)
	}
}

// TestAnOperatorThatKeepsItsOwnAnnotationOnly takes off what it does not know: what was asked is taken back
// all the same.
func TestAnOperatorThatKeepsItsOwnAnnotationOnly(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.Edit(p, func() { delete(p.Annotations, evictionv1.RequestedAnnotation) })
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.drain(0, false)
	for range 3 {
		w.tend()
		w.pass(verdict.Settle + time.Second)
	}
	if w.asked(p) || w.left() != "" {
		t.Errorf("annotations %v, left %s", p.Annotations, w.left())
	}
}

// TestRelocateIsTurnedOff because an operator is busy for nothing: what it was asked is taken back.
func TestRelocateIsTurnedOff(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.HealthyNode = evictionv1.HealthyNodeRelocate })
	p := w.pod("db-0", 0)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.Edit(w.policy, func() { w.policy.Spec.HealthyNode = evictionv1.HealthyNodeAllow })
	w.evict("db-0", verdict.Allow, verdict.HealthyNode)
	for range 3 {
		w.tend()
		w.pass(verdict.Settle + time.Second)
	}
	if w.asked(p) || w.left() != "" {
		t.Errorf("annotations %v, left %s", p.Annotations, w.left())
	}
}

// TestAnOperatorThatBeginsIsBusy takes the mark off once it begins, and moves one pod at a time.
func TestAnOperatorThatBeginsIsBusy(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	p := w.pod("db-0", 0)
	w.pod("db-1", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	w.Edit(p, func() { delete(p.Annotations, moveKey) })
	w.pass(31 * time.Second)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
}

// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestTurnsAtThePaceOfADrain evicts all pods again and again, as Cluster API's drain does every 20 s. Each pod has moved
// 10 s after it was marked for its operator.
func TestTurnsAtThePaceOfADrain(t *testing.T) {
	for _, retry := range []time.Duration{20 * time.Second, 35 * time.Second, 50 * time.Second, verdict.QueueTTL} {
		t.Run(retry.String(), func(t *testing.T) { turnsAt(t, retry) })
	}
}

func turnsAt(t *testing.T, retry time.Duration) {
	t.Helper()
	w := newWorld(t, 2, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	pods := []*corev1.Pod{w.pod("db-0", 0), w.pod("db-1", 0), w.pod("db-2", 0), w.pod("db-3", 0)}
	w.drain(0, true)
	for retries := 0; len(pods) > 0; retries++ {
		if retries > 12 {
			t.Fatalf("%d pods are left after %d retries", len(pods), retries)
		}
		for _, p := range pods {
			_, err := w.try(p.Name)
			w.Must(err)
		}
		w.pass(10 * time.Second)
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
			if !w.isMarked(p) {
				return false
			}
			w.leave(p)
			return true
		})
		w.pass(retry - 10*time.Second)
	}
}

// TestTurnsAtDifferentTimes evicts each waiting pod at a time of its own, again and again. The pod that is moved first
// leaves after a while, each other one 10 s after it was marked for its operator.
func TestTurnsAtDifferentTimes(t *testing.T) {
	const step = 500 * time.Millisecond
	for name, tc := range map[string]struct {
		retry, leaves time.Duration
		first         []time.Duration
	}{
		"Staggered":  {20 * time.Second, 47 * time.Second, []time.Duration{0, 15 * time.Second, 30 * time.Second, 45 * time.Second}},
		"EachMinute": {time.Minute, 10 * time.Second, []time.Duration{0, step}},
		"Slow":       {50 * time.Second, 10 * time.Second, []time.Duration{0, 45 * time.Second}},
		"Kubectl":    {5 * time.Second, 58 * time.Second, []time.Duration{0, 15 * time.Second, 30 * time.Second, 45 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
			leaves := map[*corev1.Pod]time.Duration{w.pod("db-first", 0): tc.leaves}
			waiting := map[*corev1.Pod]time.Duration{}
			for i, first := range tc.first {
				waiting[w.pod(fmt.Sprint("db-", i), 0)] = first
			}
			w.drain(0, true)
			w.evict("db-first", verdict.Wait, verdict.Requested)
			for now := time.Duration(0); len(waiting) > 0; now += step {
				if now > 10*time.Minute {
					t.Fatalf("%d pods wait after %s", len(waiting), now)
				}
				for p, at := range leaves {
					if at == now {
						w.leave(p)
						delete(leaves, p)
					}
				}
				for p, first := range waiting {
					if now < first || (now-first)%tc.retry != 0 {
						continue
					}
					_, err := w.try(p.Name)
					w.Must(err)
					if w.isMarked(p) {
						leaves[p] = now + 10*time.Second
						delete(waiting, p)
					}
				}
				if len(leaves) > 1 {
					t.Fatalf("%d pods are moved at a time, of one", len(leaves))
				}
				w.pass(step)
			}
		})
	}
}

// TestQueuePlaceExpiresDuringWrite has a place that expires between the read and the write.
func TestQueuePlaceExpiresDuringWrite(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	first := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	second, third := w.pod("db-1", 0), w.pod("db-2", 0)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	w.pass(verdict.QueueTTL - 10*time.Second)
	w.evict("db-2", verdict.Wait, verdict.WaitingForTurn)
	w.pass(9 * time.Second)
	w.leave(first)
	other := *w.evictor
	busy := false
	w.Fail = func(int) (before, after error) {
		if list := w.requests(); !busy && len(list) == 3 && !w.isMarked(second) && !slices.Contains(w.Writes, "patch RescheduleRequest") {
			busy = true
			w.pass(2 * time.Second)
			_, err := other.Evict(t.Context(), eviction.Attempt{Pod: client.ObjectKeyFromObject(third)})
			w.Must(err)
		}
		return nil, nil
	}
	w.Writes = nil
	_, err := w.try(second.Name)
	w.Must(err)
	if w.isMarked(second) && w.isMarked(third) {
		t.Errorf("two are moved at a time, of one: %v", w.Writes)
	}
}

// TestQueuePlaceIsGivenUpDuringWrite withdraws a request between the read and the write, which still marks the pod.
func TestQueuePlaceIsGivenUpDuringWrite(t *testing.T) {
	w := newWorld(t, 2, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	first, second := w.pod("db-0", 0), w.pod("db-1", 1)
	w.drain(0, true)
	w.drain(1, true)
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch Pod" {
			w.Fail = nil
			w.drain(0, false)
			w.tend()
			w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
		}
		return nil, nil
	}
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if !w.isMarked(first) || w.isMarked(second) {
		t.Error("two are moved at a time, of one")
	}
	w.settle()
	w.evict("db-1", verdict.Wait, verdict.Requested)
}

// TestQueueTimeInTheFuture has a guard whose clock was ahead by a day. It queued the request, and ended before it
// marked the pod.
func TestQueueTimeInTheFuture(t *testing.T) {
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
	_, _ = w.try("db-0")
	for _, r := range w.requests() {
		w.date(&r)
	}
	w.pass(24 * time.Hour)
	_, _ = w.try("db-0")
	w.Fail = nil
	w.pass(-24 * time.Hour)
	w.pass(5 * time.Minute)
	w.evict("db-1", verdict.Wait, verdict.Requested)
}

// TestOtherNamespaces do not count against maxConcurrent, neither by a mark nor by a move.
func TestOtherNamespaces(t *testing.T) {
	w, tenant := newWorld(t, 1, nil), newWorld(t, 1, nil)
	w.Must(errors.Join(w.Client.Delete(t.Context(), w.policy), w.Client.Delete(t.Context(), tenant.policy)))
	all := &evictionv1.ClusterReschedulePolicy{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
	all.Spec.ReschedulePolicySpec = w.policy.Spec
	all.Spec.MaxConcurrent, all.Spec.DeadlineSeconds = 1, 60
	all.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{w.ns, tenant.ns}},
	}
	w.Create(all)
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), all) })
	for name, at := range map[string]string{"db-0": "", "db-1": "9999-01-01T00:00:00Z"} {
		forged := tenant.pod(name, -1)
		w.Edit(forged, func() { forged.Annotations = map[string]string{moveKey: "please", evictionv1.RequestedAnnotation: at} })
	}
	first := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	tenant.pod("db-2", 0)
	tenant.drain(0, true)
	tenant.evict("db-2", verdict.Wait, verdict.WaitingForTurn)
	tenant.pass(59 * time.Second)
	tenant.evict("db-2", verdict.Wait, verdict.WaitingForTurn) // Pods of its own namespace count.
	tenant.pass(time.Second)
	tenant.evict("db-2", verdict.Wait, verdict.Requested) // until the operator's deadline
	w.leave(first)
	w.pod("db-1", 0)
	w.evict("db-1", verdict.Wait, verdict.Requested)
}

// TestPodThatDoesNotCount has a pod that has ended, or that a person marked a whole deadline ago.
func TestPodThatDoesNotCount(t *testing.T) {
	for name, tc := range map[string]struct {
		phase corev1.PodPhase
		after time.Duration
		out   string
	}{
		"Ended":        {corev1.PodSucceeded, 0, verdict.Requested},
		"Failed":       {corev1.PodFailed, 0, verdict.Requested},
		"MarkedByHand": {corev1.PodRunning, 59 * time.Second, verdict.WaitingForTurn},
		"MarkedLong":   {corev1.PodRunning, 60 * time.Second, verdict.Requested},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent, s.DeadlineSeconds = 1, 60 })
			other := w.pod("db-0", 0)
			w.Edit(other, func() { other.Annotations = map[string]string{moveKey: "please"} })
			other.Status.Phase = tc.phase
			w.Must(w.Client.Status().Update(t.Context(), other))
			w.pod("db-1", 0)
			w.drain(0, true)
			if tc.phase == corev1.PodRunning {
				w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
			}
			w.pass(tc.after)
			w.evict("db-1", verdict.Wait, tc.out)
		})
	}
}

// TestStartedMoveCounts has an operator that removes the mark when it begins, and moves one pod at a time.
func TestStartedMoveCounts(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	p := w.pod("db-0", 0)
	w.pod("db-1", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	w.Edit(p, func() { delete(p.Annotations, moveKey) })
	w.pass(verdict.QueueTTL + time.Second)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
}

// TestAnUnconfirmedMarkCounts, although the guard ended before it wrote requestedTime, and the operator removed the
// mark.
func TestAnUnconfirmedMarkCounts(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	p := w.pod("db-0", 0)
	w.pod("db-1", 0)
	w.drain(0, true)
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch RescheduleRequest" {
			return testenv.ErrLost, nil
		}
		return nil, nil
	}
	_, _ = w.try("db-0")
	w.Fail = nil
	if r := w.requests(); len(r) != 1 || !w.isMarked(p) || !r[0].Spec.RequestedTime.IsZero() {
		t.Fatalf("got %+v of %v", r, w.Writes)
	}
	w.Edit(p, func() { delete(p.Annotations, moveKey) })
	w.pass(verdict.QueueTTL + time.Second)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
}

// TestAPodThatWaitsForItsTurnIsNotReadLive has guards whose cache shows that the slot is taken. They call the API
// server only to create the request of a pod that has none.
func TestAPodThatWaitsForItsTurnIsNotReadLive(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	first, second, third := w.pod("db-0", 0), w.pod("db-1", 0), w.pod("db-2", 0)
	w.pass(time.Minute) // The pods are not new.
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	var calls atomic.Int32 // An eviction reads Node and request at the same time.
	w.late = &lateCache{w: w}
	w.late.catchUp(true, true, true)
	w.restart(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			calls.Add(1)
			return nil
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			switch list.(type) {
			case *evictionv1.ReschedulePolicyList, *evictionv1.ClusterReschedulePolicyList:
			default:
				t.Errorf("a live list of %T for a pod that waits", list)
			}
			return nil
		},
	})
	w.Writes = nil
	for range 3 {
		w.evict("db-0", verdict.Wait, verdict.Waiting)
		w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	}
	if n := calls.Load(); n > 0 || len(w.Writes) > 0 {
		t.Errorf("%d reads and %v for pods that wait", n, w.Writes)
	}
	if w.late.podLists > 0 {
		t.Errorf("the cache lists all pods %d times for a pod that waits", w.late.podLists)
	}
	resp, known, err := w.evictor.EvictCached(t.Context(), eviction.Attempt{Pod: client.ObjectKeyFromObject(third)})
	if err != nil || known != eviction.WaitWithoutRequest || resp.Outcome != verdict.WaitingForTurn {
		t.Errorf("got %+v, %d, %v", resp.Decision, known, err)
	}
	w.evict("db-2", verdict.Wait, verdict.WaitingForTurn)
	w.wantWrites("create RescheduleRequest")
	if n := calls.Load(); n != 3 {
		t.Errorf("%d reads to record a pod, want its own, its Node and its request", n)
	}
	// The slot is free, and the cache does not show it yet.
	w.leave(first)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	w.late.catchUp(true, true, true)
	w.restart(interceptor.Funcs{})
	w.evict("db-1", verdict.Wait, verdict.Requested)
	if !w.isMarked(second) || w.isMarked(third) {
		t.Error("the next one is not asked for")
	}
}

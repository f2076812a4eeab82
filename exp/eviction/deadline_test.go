// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// wantLetGo evicts db-0 until the eviction is allowed, and calls between after each attempt.
func (w *world) wantLetGo(between func()) {
	w.Helper()
	for range 30 {
		resp, err := w.try("db-0")
		if err == nil && resp.Answer == verdict.Allow {
			return
		}
		between()
	}
	w.Error("it is never let go")
}

func TestFallbacks(t *testing.T) {
	for fallback, tc := range map[evictionv1.Fallback]struct {
		answer verdict.Answer
		there  bool
	}{
		evictionv1.FallbackAllow: {verdict.Allow, true}, evictionv1.FallbackDeny: {verdict.Wait, true}, evictionv1.FallbackDelete: {verdict.Wait, false},
	} {
		t.Run(string(fallback), func(t *testing.T) {
			w, p := newRequest(t, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds, s.Fallback = 60, fallback })
			w.pass(59 * time.Second)
			w.evict("db-0", verdict.Wait, verdict.Waiting)
			w.pass(time.Second)
			w.evict("db-0", tc.answer, verdict.Overdue)
			if there := w.Read(p) && p.DeletionTimestamp == nil; there != tc.there {
				t.Errorf("there %t", there)
			}
		})
	}
}

// TestClockBehind marks a pod by a clock that is behind by more than the deadline. Other guards, and the same guard
// after its clock is corrected, grant the operator the whole deadline.
func TestClockBehind(t *testing.T) {
	w, _ := newDrain(t, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 3600 })
	clock := w.evictor.Clock
	w.evictor.Clock = clocktesting.NewFakePassiveClock(began.Add(-5 * time.Hour))
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.evictor.Clock = clock
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.pass(59 * time.Minute)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.pass(time.Minute)
	w.evict("db-0", verdict.Allow, verdict.Overdue)
}

// TestAnOperatorThatTakesItsMarkOff has an operator that removes the mark and does not move the pod. The guard marks
// the pod again, and the first deadline continues.
func TestAnOperatorThatTakesItsMarkOff(t *testing.T) {
	w, p := newDrain(t, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	for range 4 {
		w.evict("db-0", verdict.Wait, verdict.Requested)
		w.Edit(p, func() { delete(p.Annotations, moveKey) })
		w.pass(15 * time.Second)
	}
	done, err := w.reconciler.ReconcileRequest(t.Context(), client.ObjectKey{Namespace: w.ns, Name: string(p.UID)})
	if w.Must(err); !done.Overdue {
		t.Error("nobody is told that it is overdue")
	}
	w.evict("db-0", verdict.Allow, verdict.Overdue)
}

// TestManualMarkDoesNotExtendDeadline has a client that marks the pod itself, so that the guard never does.
func TestManualMarkDoesNotExtendDeadline(t *testing.T) {
	w, p := newDrain(t, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds, s.MaxConcurrent = 60, 1 })
	forge := func() {
		w.Edit(p, func() {
			p.Annotations = map[string]string{moveKey: "please", evictionv1.RequestedAnnotation: w.clock.Now().UTC().Format(time.RFC3339Nano)}
		})
	}
	forge()
	_, err := w.try("db-0")
	w.Must(err)
	w.pass(31 * time.Second)
	w.wantLetGo(func() {
		forge()
		w.pass(15 * time.Second)
	})
}

// TestGuardThatStopsAfterMark has a guard that ends after it marked the pod. Only the pod has the time of the mark
// until the next eviction.
func TestGuardThatStopsAfterMark(t *testing.T) {
	w, p := newDrain(t, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch RescheduleRequest" {
			return testenv.ErrLost, nil
		}
		return nil, nil
	}
	_, err := w.try("db-0")
	if !errors.Is(err, testenv.ErrLost) || !w.isMarked(p) {
		t.Fatalf("asked %t: %v", w.isMarked(p), err)
	}
	w.Fail, w.Writes = nil, nil
	for range 2 {
		w.evict("db-0", verdict.Wait, verdict.Waiting)
	}
	w.wantWrites("patch RescheduleRequest")
	w.Edit(p, func() { p.Annotations = map[string]string{moveKey: "please"} })
	w.pass(60 * time.Second)
	w.evict("db-0", verdict.Allow, verdict.Overdue)
	w.drain(0, false)
	w.wantTakenBack(p)
}

// TestAGuardWhoseClockWasAhead has a guard that marked the pod with a clock ahead by a day.
func TestAGuardWhoseClockWasAhead(t *testing.T) {
	w, _ := newDrain(t, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	// The creation time of the request is the API server's.
	w.Fail = func(n int) (before, after error) {
		if n == 0 {
			return nil, testenv.ErrLost
		}
		return nil, nil
	}
	_, _ = w.try("db-0")
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

// TestAPodThatIsACopy has a pod with the marks of another pod: from a backup, or from an operator that copies
// annotations.
func TestAPodThatIsACopy(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds, s.MaxConcurrent = 60, 1 })
	p, next := w.pod("db-0", 0), w.pod("db-1", 0)
	w.Edit(p, func() {
		p.Annotations = map[string]string{moveKey: "please", evictionv1.RequestedAnnotation: began.Add(-time.Hour).Format(time.RFC3339Nano)}
	})
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.pass(59 * time.Second)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	w.pass(time.Second)
	w.evict("db-0", verdict.Allow, verdict.Overdue)
	w.evict("db-1", verdict.Wait, verdict.Requested)
	if !w.isMarked(next) {
		t.Error("a pod that is overdue keeps others waiting")
	}
}

// TestAPodThatMayNotBeMarked has a pod whose changes an admission policy rejects. At the deadline the fallback of the
// policy applies.
func TestAPodThatMayNotBeMarked(t *testing.T) {
	w, _ := newDrain(t, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch Pod" {
			return apierrors.NewForbidden(corev1.Resource("pods"), "db-0", errors.New("a policy of somebody else")), nil
		}
		return nil, nil
	}
	w.wantLetGo(func() { w.pass(10 * time.Second) })
}

// TestAnEvictionFromAHealthyNodeHasAnEnd, although the operator does not move the pod.
func TestAnEvictionFromAHealthyNodeHasAnEnd(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) {
		s.DeadlineSeconds, s.HealthyNode = 60, evictionv1.HealthyNodeRelocate
	})
	w.pod("db-0", 0)
	w.wantLetGo(func() {
		w.pass(7 * time.Second)
		w.tend()
	})
}

// TestAPodThatComesBackOnItsNode has an operator that ignores the cordon and recreates the pod on its Node. The drain
// ends at the first deadline.
func TestAPodThatComesBackOnItsNode(t *testing.T) {
	for name, tc := range map[string]struct {
		owner *metav1.OwnerReference
		names [2]string
	}{
		"SameName":       {nil, [2]string{"db-0", "db-0"}},
		"SameController": {&metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "db", UID: "u1", Controller: new(true)}, [2]string{"db-a", "db-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds, s.MaxConcurrent = 60, 1 })
			owned := func(name string) *corev1.Pod {
				p := w.pod(name, 0)
				if tc.owner != nil {
					w.Edit(p, func() { p.OwnerReferences = []metav1.OwnerReference{*tc.owner} })
				}
				return p
			}
			w.drain(0, true)
			for i := range 6 { // Before the deadline, each of the pods is marked.
				p := owned(tc.names[i%2])
				w.evict(p.Name, verdict.Wait, verdict.Requested)
				if !w.isMarked(p) {
					t.Fatalf("its operator is not asked for pod %d", i)
				}
				w.pass(10 * time.Second)
				w.leave(p)
				w.tend()
			}
			last := owned(tc.names[0])
			w.evict(last.Name, verdict.Allow, verdict.Overdue)
		})
	}
}

// TestAPodThatComesBackBeforeTheCacheShowsIt keeps the first deadline, also if the cache lacks the first request.
func TestAPodThatComesBackBeforeTheCacheShowsIt(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	w.evictor.Cache = fake.NewClientBuilder().WithScheme(w.Client.Scheme()).Build()
	first := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.leave(first)
	w.pass(time.Minute)
	w.pod("db-0", 0) // The fake cache has no pod, so the Evictor reads live. It lacks the first request, too.
	w.evict("db-0", verdict.Allow, verdict.Overdue)
}

// TestAPodThatComesBackInAnotherDrain gets its whole deadline, and so does another pod of the same controller.
func TestAPodThatComesBackInAnotherDrain(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "db", UID: "u1", Controller: new(true)}
	first, other := w.pod("db-0", 0), w.pod("db-1", 0)
	for _, p := range []*corev1.Pod{first, other} {
		w.Edit(p, func() { p.OwnerReferences = []metav1.OwnerReference{owner} })
	}
	w.pass(time.Second)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.pass(30 * time.Second)
	w.leave(first)
	w.evict("db-1", verdict.Wait, verdict.Requested)
	w.pass(31 * time.Second)
	w.evict("db-1", verdict.Wait, verdict.Waiting) // It ran before db-0 was marked.
	w.drain(0, false)
	w.tend()
	w.pod("db-0", 0)
	w.pass(5 * time.Minute)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.pass(59 * time.Second)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
}

// TestAPodThatComesBackAfterAnUncordonThatNoGuardSaw gets its whole deadline if Kubernetes tainted the Node after the
// pod was marked.
func TestAPodThatComesBackAfterAnUncordonThatNoGuardSaw(t *testing.T) {
	at := func(d time.Duration) corev1.Taint {
		added := metav1.NewTime(began.Add(d))
		return corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added}
	}
	unknown := at(0)
	unknown.TimeAdded = nil
	for name, tc := range map[string]struct {
		taints []corev1.Taint
		answer verdict.Answer
		why    string
	}{
		"CordonedAgain": {[]corev1.Taint{at(5 * time.Minute)}, verdict.Wait, verdict.Requested},
		"CordonedOnce":  {[]corev1.Taint{at(0)}, verdict.Allow, verdict.Overdue},
		"SameSecond":    {[]corev1.Taint{at(time.Second)}, verdict.Allow, verdict.Overdue},
		"UnknownTime":   {[]corev1.Taint{unknown}, verdict.Allow, verdict.Overdue},
		"NoTaint":       {nil, verdict.Allow, verdict.Overdue},
		"OtherDrainer": {
			[]corev1.Taint{at(5 * time.Minute), {Key: eviction.DrainTaints[0], Effect: corev1.TaintEffectNoSchedule}},
			verdict.Allow, verdict.Overdue,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
			p := w.pod("db-0", 0)
			w.pass(time.Second)
			w.drain(0, true)
			w.evict("db-0", verdict.Wait, verdict.Requested)
			w.leave(p)
			w.pass(5 * time.Minute)
			w.pod("db-0", 0)
			w.Edit(w.nodes[0], func() { w.nodes[0].Spec.Taints = tc.taints })
			w.evict("db-0", tc.answer, tc.why)
		})
	}
}

// TestOnlyDrainsPassOnTheirDeadline: neither a request without a drain nor a withdrawn one has the ControllerLabel, by
// which a later pod keeps the deadline.
func TestOnlyDrainsPassOnTheirDeadline(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.HealthyNode = evictionv1.HealthyNodeRelocate })
	labelled := func(want bool) {
		t.Helper()
		if r := w.requests(); len(r) != 1 || r[0].Labels != nil != want {
			t.Errorf("got %+v, want a label: %t", r, want)
		}
	}
	w.pod("db-0", 0)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	labelled(false)
	w, _ = newRequest(t, nil)
	labelled(true)
	w.drain(0, false)
	w.tend()
	labelled(false)
}

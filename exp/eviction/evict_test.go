// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAnOperatorMovesItsPod has every write be refused, and every reply be lost.
func TestAnOperatorMovesItsPod(t *testing.T) {
	testenv.CrashPoints(t, 6, func(t *testing.T, fail testenv.Fail) (seen []string, writes int) {
		t.Helper()
		w := newWorld(t, 2, func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
		w.Fail = fail
		w.drain(0, true)
		p := w.pod("db-0", 0)
		see := func(what string) {
			if len(seen) == 0 || seen[len(seen)-1] != what {
				seen = append(seen, what)
			}
		}
		evict := func() {
			w.restart(interceptor.Funcs{})
			said, err := w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKeyFromObject(p)})
			if err == nil {
				see(fmt.Sprint(said.Answer))
			}
			w.pass(5 * time.Second)
		}
		for range 4 {
			evict()
		}
		see(fmt.Sprint("asked ", w.asked(p)))
		w.leave(p)
		w.pod("db-0", 1)
		for range 3 {
			evict()
		}
		w.pass(eviction.Keep)
		for range 4 {
			for _, r := range w.requests() {
				_, _ = w.tender.Tend(t.Context(), client.ObjectKeyFromObject(&r))
			}
			w.pass(eviction.Keep)
		}
		see("left " + w.left())
		return seen, len(w.Writes)
	})
}

func TestNothingIsWrittenTwice(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	if said := w.evict("db-0", verdict.Wait, verdict.Requested); said.Message != "Reschedule annotation added to pod" {
		t.Errorf("said %q", said.Message)
	}
	w.wantWrites("create RescheduleRequest", "patch Pod", "patch RescheduleRequest")
	if !w.asked(p) {
		t.Error("nobody asked")
	}
	version := p.ResourceVersion
	var last string
	for range 3 {
		w.pass(5 * time.Second)
		said := w.evict("db-0", verdict.Wait, verdict.Waiting)
		if said.Message != "Pod waiting to be rescheduled" || last != "" && said.Cause != last {
			t.Errorf("said %q because of %q, and before %q", said.Message, said.Cause, last)
		}
		last = said.Cause
	}
	w.wantWrites()
	if w.Read(p); p.ResourceVersion != version {
		t.Error("the pod was written to")
	}
	if r := w.requests(); len(r) != 1 || r[0].Name != string(p.UID) || r[0].Spec.Requester != "kubectl" || r[0].Spec.NodeName != w.nodes[0].Name {
		t.Errorf("got %+v", r)
	}
}

func TestAMovedPodIsGone(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.leave(p)
	w.evict("db-0", verdict.Gone, verdict.NoPod)
	again := w.pod("db-0", -1)
	w.evict("db-0", verdict.Gone, verdict.Rescheduled)
	w.leave(again)
	moved := w.pod("db-0", 1)
	for range 3 { // It stays so.
		w.evict("db-0", verdict.Gone, verdict.Rescheduled)
		w.pass(5 * time.Second)
	}
	if w.asked(moved) {
		t.Error("a pod that has been moved is moved again")
	}
	w.drain(1, true) // Now it is in the way there.
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if !w.asked(moved) {
		t.Error("nobody asked")
	}
	w.drain(1, false)
	w.pass(eviction.Keep)
	w.evict("db-0", verdict.Allow, verdict.HealthyNode)
}

// TestAPodThatIsMovedTwice leaves a second Node, which comes back: the drainer of the first still asks.
func TestAPodThatIsMovedTwice(t *testing.T) {
	w := newWorld(t, 3, nil)
	for node := range 2 {
		p := w.pod("db-0", node)
		w.drain(node, true)
		w.evict("db-0", verdict.Wait, verdict.Requested)
		w.leave(p)
		w.pass(time.Second)
	}
	w.pod("db-0", 2)
	w.drain(1, false)
	w.evict("db-0", verdict.Gone, verdict.Rescheduled)
	w.drain(0, false)
	w.drain(1, true)
	w.evict("db-0", verdict.Gone, verdict.Rescheduled)
	w.drain(1, false)
	w.evict("db-0", verdict.Allow, verdict.HealthyNode)
}

// TestWhatIsStaleSaysNothing has marks and requests of earlier drains lie about.
func TestWhatIsStaleSaysNothing(t *testing.T) {
	w := newWorld(t, 2, func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	w.Edit(ns, func() { ns.Annotations = map[string]string{"reschedule.hook/" + w.ns + ".db-0": "true"} })
	old := w.pod("db-0", 1)
	w.drain(1, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.leave(old)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	for range 3 {
		w.evict("db-0", verdict.Wait, map[bool]string{false: verdict.Requested, true: verdict.Waiting}[w.asked(p)])
	}
}

// TestManyAtOnce has twenty drainers evict ten pods by two guards.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, 1, nil)
	for i := range 10 {
		w.pod(fmt.Sprintf("db-%d", i), 0)
	}
	w.drain(0, true)
	plain := w.Client
	var working sync.WaitGroup
	for range 20 {
		a := *w.asker
		a.Live, a.Policies = plain, plain
		a.Write = writer{plain}
		for i := range 10 {
			working.Go(func() {
				said, err := a.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKey{Namespace: w.ns, Name: fmt.Sprintf("db-%d", i)}})
				if err != nil || said.Answer != verdict.Wait {
					t.Errorf("got %+v, %v", said.Decision, err)
				}
			})
		}
	}
	working.Wait()
	if got := w.requests(); len(got) != 10 {
		t.Errorf("%d requests", len(got))
	}
}

func TestADryRunWritesNothing(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	said, err := w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKeyFromObject(p), DryRun: true})
	w.Must(err)
	if said.Answer != verdict.Wait || said.Message != "Reschedule annotation added to pod" {
		t.Errorf("said %+v", said.Decision)
	}
	w.wantWrites()
}

// TestAGlanceThatIsLate does not show a pod yet, or shows the one that had its name before.
func TestAGlanceThatIsLate(t *testing.T) {
	w := newWorld(t, 2, nil)
	earlier := w.pod("db-0", 0)
	reads, _ := w.Late(earlier)
	shows := w.Recorded(reads)
	w.leave(earlier)
	next := w.pod("db-0", 1)
	w.drain(1, true)
	w.asker.Glance = shows
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if !w.asked(next) {
		t.Error("the operator of the pod that is there is not asked")
	}
	w.leave(next)
	w.evict("db-0", verdict.Gone, verdict.NoPod)
	w.asker.Glance = fake.NewClientBuilder().Build()
	last := w.pod("db-1", 1)
	w.evict("db-1", verdict.Wait, verdict.Requested)
	if !w.asked(last) {
		t.Error("the operator of the pod that is not shown yet is not asked")
	}
}

// TestWhatCannotBeReadIsNotGone nor drained, nor healthy, nor unselected.
func TestWhatCannotBeReadIsNotGone(t *testing.T) {
	broken := errors.New("no route to host")
	for name, tc := range map[string]struct {
		kind string
		said string
	}{
		"Pod":      {"*v1.Pod", ""},
		"Node":     {"*v1.Node", verdict.NodeUnknown},
		"Requests": {"*v1alpha1.RescheduleRequest", ""},
		"Policies": {"*v1alpha1.ReschedulePolicyList", ""},
		"Others":   {"*v1alpha1.ClusterReschedulePolicyList", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, nil)
			p := w.pod("db-0", 0)
			w.drain(0, true)
			fails := func(obj any) error {
				if fmt.Sprintf("%T", obj) == tc.kind {
					return broken
				}
				return nil
			}
			w.restart(interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
					return fails(obj)
				},
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
					return fails(list)
				},
			})
			said, err := w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKeyFromObject(p)})
			if errors.Is(err, broken) != (tc.said == "") || said.Outcome != tc.said || err == nil && said.Answer != verdict.Wait {
				t.Errorf("got %+v, %v", said.Decision, err)
			}
			w.wantWrites()
		})
	}
}

func TestARequestIsTakenBack(t *testing.T) {
	testenv.CrashPoints(t, 6, func(t *testing.T, fail testenv.Fail) ([]string, int) {
		t.Helper()
		w := newWorld(t, 1, nil)
		p := w.pod("db-0", 0)
		w.drain(0, true)
		w.Fail = fail
		for range 2 {
			_, _ = w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKeyFromObject(p)})
		}
		w.drain(0, false)
		for range 6 {
			for _, r := range w.requests() {
				_, _ = w.tender.Tend(t.Context(), client.ObjectKeyFromObject(&r))
			}
			w.pass(verdict.Settle)
		}
		w.Read(p)
		return []string{w.left(), fmt.Sprint(p.Annotations)}, len(w.Writes)
	})
}

// TestWhatOthersAskedForStays has a person have asked the operator.
func TestWhatOthersAskedForStays(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.Edit(p, func() { p.Annotations = map[string]string{moveKey: "please"} })
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.wantWrites("create RescheduleRequest")
	w.drain(0, false)
	for range 3 {
		w.tend()
		w.pass(verdict.Settle + time.Second)
	}
	if !w.asked(p) || w.left() != "" {
		t.Errorf("annotations %v, left %s", p.Annotations, w.left())
	}
}

// TestAMarkThatCannotBeTakenAway on another object holds back neither the request nor the next drain.
func TestAMarkThatCannotBeTakenAway(t *testing.T) {
	for name, refused := range map[string]error{
		"Forbidden": apierrors.NewForbidden(corev1.Resource("namespaces"), "db", errors.New("the role is gone")),
		"NoKind":    &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "couchbase.com", Kind: "CouchbaseCluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
			w.pod("db-0", 0)
			w.drain(0, true)
			w.evict("db-0", verdict.Wait, verdict.Requested)
			w.restart(interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				if key.Name == w.ns {
					return refused
				}
				return nil
			}})
			w.drain(0, false)
			for range 3 {
				for _, r := range w.requests() {
					_, _ = w.tender.Tend(t.Context(), client.ObjectKeyFromObject(&r))
				}
				w.pass(verdict.Settle + time.Second)
			}
			if left := w.requests(); len(left) > 0 {
				t.Errorf("left %+v", left)
			}
			w.drain(0, true)
			w.evict("db-0", verdict.Wait, verdict.Requested)
		})
	}
}

// TestAPodThatMayNotBeChanged keeps what asks its operator, and can be drained again.
func TestAPodThatMayNotBeChanged(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.drain(0, false)
	w.tend()
	refused := apierrors.NewForbidden(corev1.Resource("pods"), "db-0", errors.New("an admission policy"))
	w.Fail = func(int) (before, after error) {
		if strings.HasSuffix(strings.Join(w.Writes, " "), "patch Pod") {
			return refused, nil
		}
		return nil, nil
	}
	key := client.ObjectKey{Namespace: w.ns, Name: string(p.UID)}
	w.pass(verdict.Settle)
	if _, err := w.tender.Tend(t.Context(), key); !errors.Is(err, refused) {
		t.Fatalf("its pod may be changed again soon: %v", err)
	}
	w.pass(eviction.Keep)
	if _, err := w.tender.Tend(t.Context(), key); err != nil || len(w.requests()) > 0 {
		t.Fatalf("left %v: %v", w.requests(), err)
	}
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
}

// TestADrainThatBeginsAnew while the request of the last one is being withdrawn.
func TestADrainThatBeginsAnew(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.drain(0, false)
	w.tend()
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Withdrawing)
	w.pass(verdict.Settle)
	w.tend()
	if w.asked(p) {
		t.Error("not taken back")
	}
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if !w.asked(p) {
		t.Error("nobody asked")
	}
}

func TestFallbacks(t *testing.T) {
	for fallback, tc := range map[evictionv1.Fallback]struct {
		answer verdict.Answer
		there  bool
	}{
		evictionv1.FallbackAllow: {verdict.Allow, true}, evictionv1.FallbackDeny: {verdict.Wait, true}, evictionv1.FallbackDelete: {verdict.Wait, false},
	} {
		t.Run(string(fallback), func(t *testing.T) {
			w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds, s.Fallback = 60, fallback })
			p := w.pod("db-0", 0)
			w.drain(0, true)
			w.evict("db-0", verdict.Wait, verdict.Requested)
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

// TestAnOperatorThatTakesItsMarkOff and leaves the pod where it is has the time of its policy all the
// same: it is asked again, and not from the beginning.
func TestAnOperatorThatTakesItsMarkOff(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	p := w.pod("db-0", 0)
	w.drain(0, true)
	for range 4 {
		w.evict("db-0", verdict.Wait, verdict.Requested)
		w.Edit(p, func() { delete(p.Annotations, moveKey) })
		w.pass(15 * time.Second)
	}
	done, err := w.tender.Tend(t.Context(), client.ObjectKey{Namespace: w.ns, Name: string(p.UID)})
	if w.Must(err); !done.Overdue {
		t.Error("nobody is told that it is overdue")
	}
	w.evict("db-0", verdict.Allow, verdict.Overdue)
}

// TestAPodThatIsACopy bears what another one was marked with: from a backup, or because its operator
// copies annotations.
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
	if !w.asked(next) {
		t.Error("a pod that is overdue keeps others waiting")
	}
}

// TestOneAfterTheOther has three pods of which one is moved at a time.
func TestOneAfterTheOther(t *testing.T) {
	w := newWorld(t, 2, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	pods := map[string]*corev1.Pod{}
	for i := range 3 {
		name := fmt.Sprintf("db-%d", i)
		pods[name] = w.pod(name, 0)
	}
	w.drain(0, true)
	var order []string
	for range 3 {
		var turn string
		for range 3 {
			for name, p := range pods {
				said, err := w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKeyFromObject(p)})
				w.Must(err)
				if said.Answer != verdict.Wait {
					t.Fatalf("%s: %+v", name, said.Decision)
				}
			}
			var asked []string
			for name, p := range pods {
				if w.asked(p) {
					asked = append(asked, name)
				}
			}
			if len(asked) != 1 || turn != "" && asked[0] != turn {
				t.Fatalf("asked for %v, before for %q", asked, turn)
			}
			turn = asked[0]
			w.pass(20 * time.Second)
		}
		order = append(order, turn)
		w.leave(pods[turn])
		delete(pods, turn)
	}
	slices.Sort(order)
	if strings.Join(order, " ") != "db-0 db-1 db-2" {
		t.Errorf("moved %v", order)
	}
}

// TestAPlaceInTheLineIsNotLostWhileItIsUsed has the place of a pod get old between what was read and what
// is written.
func TestAPlaceInTheLineIsNotLostWhileItIsUsed(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	first := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	second, third := w.pod("db-1", 0), w.pod("db-2", 0)
	w.evict("db-1", verdict.Wait, verdict.WaitingForTurn)
	w.pass(20 * time.Second)
	w.evict("db-2", verdict.Wait, verdict.WaitingForTurn)
	w.pass(9 * time.Second)
	w.leave(first)
	other := *w.asker
	busy := false
	w.Fail = func(int) (before, after error) {
		if list := w.requests(); !busy && len(list) == 3 && !w.asked(second) && !slices.Contains(w.Writes, "patch RescheduleRequest") {
			busy = true
			w.pass(2 * time.Second)
			_, err := other.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKeyFromObject(third)})
			w.Must(err)
		}
		return nil, nil
	}
	w.Writes = nil
	_, err := w.asker.Evict(t.Context(), eviction.Wanted{Pod: client.ObjectKeyFromObject(second)})
	w.Must(err)
	if w.asked(second) && w.asked(third) {
		t.Errorf("two are moved at a time, of one: %v", w.Writes)
	}
}

// TestTheMarksOfOtherNamespaces hold nobody back, where nobody wrote down that an operator was asked.
func TestTheMarksOfOtherNamespaces(t *testing.T) {
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
	w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	tenant.pod("db-2", 0)
	tenant.drain(0, true)
	tenant.evict("db-2", verdict.Wait, verdict.WaitingForTurn)
	tenant.pass(59 * time.Second)
	tenant.evict("db-2", verdict.Wait, verdict.WaitingForTurn) // Of its own namespace they count.
	tenant.pass(time.Second)
	tenant.evict("db-2", verdict.Wait, verdict.Requested) // For as long as an operator has.
}

// TestAPodThatKeepsNobodyWaiting has ended, or has been asked for by a person for as long as an operator has.
func TestAPodThatKeepsNobodyWaiting(t *testing.T) {
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

// TestAnOperatorThatTakesTheMarkAway once it has read it, or writes there how far it has come, has no more
// time for that.
func TestAnOperatorThatTakesTheMarkAway(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 })
	p := w.pod("db-0", 0)
	w.drain(0, true)
	for range 6 {
		w.evict("db-0", verdict.Wait, verdict.Requested)
		w.pass(10 * time.Second)
		w.Read(p)
		w.Edit(p, func() { delete(p.Annotations, moveKey) })
	}
	w.evict("db-0", verdict.Allow, verdict.Overdue)
}

// TestAnEvictionFromAHealthyNodeHasAnEnd although nobody moves the pod.
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

// TestPoliciesInOrder has several select a pod.
func TestPoliciesInOrder(t *testing.T) {
	w := newWorld(t, 1, nil)
	first := w.policy.DeepCopy()
	first.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "a"}
	first.Spec.Request.Annotation.Value = "first"
	all := &evictionv1.ClusterReschedulePolicy{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
	all.Spec.ReschedulePolicySpec = *first.Spec.DeepCopy()
	all.Spec.NamespaceSelector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": w.ns}
	w.Create(first, all)
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), all) })
	p := w.pod("db-0", 0)
	w.drain(0, true)
	if said := w.evict("db-0", verdict.Wait, verdict.Requested); said.Policy.String() != "ReschedulePolicy a" {
		t.Errorf("got %s", said.Policy)
	}
	if w.Read(p); p.Annotations[moveKey] != "first" {
		t.Errorf("got %v", p.Annotations)
	}
	w.Must(errors.Join(w.Client.Delete(t.Context(), first), w.Client.Delete(t.Context(), w.policy)))
	w.pod("db-1", 0)
	if said := w.evict("db-1", verdict.Wait, verdict.Requested); said.Policy.Kind != evictionv1.ClusterPolicy {
		t.Errorf("got %s", said.Policy)
	}
	w.Must(w.Client.Delete(t.Context(), all))
	w.evict("db-1", verdict.Allow, verdict.NotSelected)
	if fates := w.tend(); !slices.Equal(fates, []verdict.Fate{verdict.Withdraw, verdict.Withdraw}) {
		t.Errorf("nobody asks any more: %v", fates)
	}
}

// TestAPolicyThatCannotSelect is told of, and stops no other.
func TestAPolicyThatCannotSelect(t *testing.T) {
	w := newWorld(t, 1, nil)
	bad := w.policy.DeepCopy()
	bad.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "a"}
	bad.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a b", Operator: metav1.LabelSelectorOpExists}}}
	w.Create(bad)
	w.pod("db-0", 0)
	w.drain(0, true)
	said := w.evict("db-0", verdict.Wait, verdict.Requested)
	if len(said.Warnings) == 0 || !strings.Contains(said.Warnings[0], `ReschedulePolicy a is ignored: spec.podSelector: key: Invalid value: "a b"`) {
		t.Errorf("warned %q", said.Warnings)
	}
	w.Must(w.Client.Delete(t.Context(), w.policy))
	if fates := w.tend(); !slices.Equal(fates, []verdict.Fate{verdict.Stays}) {
		t.Errorf("nobody knows what the other selects: %v", fates)
	}
}

// TestAPolicyThatCannotAsk is refused: what it puts on a pod would have the pod be selected no more,
// and so be evicted, or would be written over.
func TestAPolicyThatCannotAsk(t *testing.T) {
	w := newWorld(t, 1, nil)
	for name, change := range map[string]func(*evictionv1.ReschedulePolicySpec){
		"by its own label": func(s *evictionv1.ReschedulePolicySpec) {
			s.Request = evictionv1.Request{Label: &evictionv1.Label{Key: "app", Value: "moves"}}
		},
		"by a key that no pod can have": func(s *evictionv1.ReschedulePolicySpec) {
			s.Request.Annotation.Key = "a..b/c"
		},
		"for an operator that is none": func(s *evictionv1.ReschedulePolicySpec) {
			s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Inn", Values: []string{"db"}}}
		},
		"for one of no values": func(s *evictionv1.ReschedulePolicySpec) {
			s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}
		},
		"for values of what need only be there": func(s *evictionv1.ReschedulePolicySpec) {
			s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists, Values: []string{"db"}}}
		},
		"by what says since when": func(s *evictionv1.ReschedulePolicySpec) {
			s.Request.Annotation.Key = evictionv1.RequestedAnnotation
		},
	} {
		own := w.policy.DeepCopy()
		own.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "other"}
		change(&own.Spec)
		all := &evictionv1.ClusterReschedulePolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: evictionv1.ClusterReschedulePolicySpec{ReschedulePolicySpec: own.Spec}}
		for _, policy := range []client.Object{own, all} {
			if err := w.Client.Create(t.Context(), policy, client.DryRunAll); !apierrors.IsInvalid(err) {
				t.Errorf("%s: a %T says %v", name, policy, err)
			}
		}
	}
}

// TestAPolicyThatUnselects is told of, and asks nobody: a pod that was asked for would be evicted.
func TestAPolicyThatUnselects(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted  metav1.LabelSelectorRequirement
		answer  verdict.Answer
		outcome string
	}{
		"must not have it": {metav1.LabelSelectorRequirement{Key: "move", Operator: metav1.LabelSelectorOpDoesNotExist}, verdict.Allow, verdict.NotSelected},
		"another value":    {metav1.LabelSelectorRequirement{Key: "move", Operator: metav1.LabelSelectorOpIn, Values: []string{"later"}}, verdict.Allow, verdict.NotSelected},
		"this, too":        {metav1.LabelSelectorRequirement{Key: "move", Operator: metav1.LabelSelectorOpIn, Values: []string{"later", "now"}}, verdict.Wait, verdict.Requested},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) {
				s.Request = evictionv1.Request{Label: &evictionv1.Label{Key: "move", Value: "now"}}
				s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{tc.wanted}
			})
			p := w.pod("db-0", 0)
			if tc.wanted.Operator == metav1.LabelSelectorOpIn {
				w.Edit(p, func() { p.Labels["move"] = "later" })
			}
			w.drain(0, true)
			said := w.evict("db-0", tc.answer, tc.outcome)
			if ignored := tc.answer == verdict.Allow; ignored != (len(said.Warnings) == 1 && strings.Contains(said.Warnings[0], "ReschedulePolicy db is ignored: spec.podSelector selects no pod that has the label move=now")) {
				t.Errorf("warned %q", said.Warnings)
			}
		})
	}
}

// TestALabelAsks, and both who move pods in the background are understood.
func TestALabelAsks(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) {
		s.Request = evictionv1.Request{Label: &evictionv1.Label{Key: "move", Value: "now"}}
	})
	p, busy := w.pod("db-0", 0), w.pod("db-1", 0)
	w.Edit(busy, func() {
		busy.Annotations = map[string]string{"descheduler.alpha.kubernetes.io/eviction-in-progress": "kubevirt"}
	})
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if w.Read(p); p.Labels["move"] != "now" {
		t.Errorf("got %v", p.Labels)
	}
	w.evict("db-1", verdict.Wait, verdict.Waiting)
	if w.Read(busy); busy.Labels["move"] != "" {
		t.Error("it is on its way already")
	}
}

// TestAPolicyThatAsksForSomethingElse asks anew, and leaves nothing of what it asked for before.
func TestAPolicyThatAsksForSomethingElse(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.Edit(w.policy, func() { w.policy.Spec.Request.Annotation.Key = "db.example.com/go" })
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	for range 2 {
		w.tend()
		w.pass(verdict.Settle + time.Second)
	}
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if w.Read(p); p.Annotations["db.example.com/go"] != "please" || p.Annotations[moveKey] != "" {
		t.Errorf("got %v", p.Annotations)
	}
}

// TestPodsOfTheNodeAreNotMoved whatever a policy selects.
func TestPodsOfTheNodeAreNotMoved(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.Edit(p, func() {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "db", UID: "d", Controller: new(true)}}
	})
	w.drain(0, true)
	w.evict("db-0", verdict.Allow, verdict.NotSelected)
}

// TestANamespaceThatGoes takes its pods with it.
func TestANamespaceThatGoes(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.pod("db-0", 0)
	w.drain(0, true)
	w.Must(w.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	w.evict("db-0", verdict.Allow, verdict.NotRunning)
}

// writer writes without being counted: counting is not for several at once.
type writer struct{ client.Client }

func (w writer) Create(ctx context.Context, obj client.Object) error {
	return w.Client.Create(ctx, obj)
}

func (w writer) Delete(ctx context.Context, obj client.Object) error {
	return w.Client.Delete(ctx, obj)
}

func (w writer) Patch(ctx context.Context, obj, before client.Object, opts ...client.PatchOption) error {
	return w.Client.Patch(ctx, obj, client.MergeFrom(before), opts...)
}

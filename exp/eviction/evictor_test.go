// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAnOperatorMovesItsPod fails every write, and loses every reply, once each.
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
			resp, err := w.try(p.Name)
			if err == nil {
				see(fmt.Sprint(resp.Answer))
			}
			w.pass(5 * time.Second)
		}
		for range 4 {
			evict()
		}
		see(fmt.Sprint("asked ", w.isMarked(p)))
		w.leave(p)
		w.pod("db-0", 1)
		for range 3 {
			evict()
		}
		w.pass(eviction.DefaultNameProtection)
		for range 4 {
			for _, r := range w.requests() {
				_, _ = w.reconciler.ReconcileRequest(t.Context(), client.ObjectKeyFromObject(&r))
			}
			w.pass(eviction.DefaultNameProtection)
		}
		see("left " + w.left())
		return seen, len(w.Writes)
	})
}

func TestNothingIsWrittenTwice(t *testing.T) {
	w, p := newDrain(t, nil)
	if resp := w.evict("db-0", verdict.Wait, verdict.Requested); resp.Message != "Reschedule annotation added to pod" {
		t.Errorf("said %q", resp.Message)
	}
	w.wantWrites("create RescheduleRequest", "patch Pod", "patch RescheduleRequest")
	if !w.isMarked(p) {
		t.Error("nobody asked")
	}
	version := p.ResourceVersion
	var last string
	for range 3 {
		w.pass(5 * time.Second)
		resp := w.evict("db-0", verdict.Wait, verdict.Waiting)
		if resp.Message != "Pod waiting to be rescheduled" || last != "" && resp.Cause != last {
			t.Errorf("said %q because of %q, and before %q", resp.Message, resp.Cause, last)
		}
		last = resp.Cause
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
	for range 3 { // The answer does not change.
		w.evict("db-0", verdict.Gone, verdict.Rescheduled)
		w.pass(5 * time.Second)
	}
	if w.isMarked(moved) {
		t.Error("a pod that has been moved is moved again")
	}
	w.drain(1, true) // Its new Node is drained, too.
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if !w.isMarked(moved) {
		t.Error("nobody asked")
	}
	w.drain(1, false)
	w.pass(eviction.DefaultNameProtection)
	w.evict("db-0", verdict.Allow, verdict.HealthyNode)
}

// TestAPodThatIsMovedTwice has a pod that also leaves a second Node, which is uncordoned. The drainer of the first Node
// still evicts by name.
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

// TestMarksOfEarlierDrainsAreIgnored has marks and requests of earlier drains.
func TestMarksOfEarlierDrainsAreIgnored(t *testing.T) {
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
		w.evict("db-0", verdict.Wait, map[bool]string{false: verdict.Requested, true: verdict.Waiting}[w.isMarked(p)])
	}
}

// TestManyAtOnce has twenty drainers that evict ten pods through two guards.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, 1, nil)
	for i := range 10 {
		w.pod(fmt.Sprintf("db-%d", i), 0)
	}
	w.drain(0, true)
	plain := w.Client
	var working sync.WaitGroup
	for range 20 {
		a := *w.evictor
		a.Live, a.Policies = plain, plain
		a.Write = actuate.New(plain)
		for i := range 10 {
			working.Go(func() {
				resp, err := a.Evict(t.Context(), eviction.Attempt{Pod: client.ObjectKey{Namespace: w.ns, Name: fmt.Sprintf("db-%d", i)}})
				if err != nil || resp.Answer != verdict.Wait {
					t.Errorf("got %+v, %v", resp.Decision, err)
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
	w, p := newDrain(t, nil)
	resp, err := w.evictor.Evict(t.Context(), eviction.Attempt{Pod: client.ObjectKeyFromObject(p), DryRun: true})
	w.Must(err)
	if resp.Answer != verdict.Wait || resp.Message != "Reschedule annotation would be added to pod" || !strings.HasSuffix(resp.Cause, "its operator would be asked to move it") {
		t.Errorf("a dry run must say what would be done: %+v", resp.Decision)
	}
	w.wantWrites()
}

// TestACacheThatIsLate has a cache that lacks a pod, or that has the earlier pod with its name.
func TestACacheThatIsLate(t *testing.T) {
	w := newWorld(t, 2, nil)
	earlier := w.pod("db-0", 0)
	reads, _ := w.Late(earlier)
	shows := w.Recorded(reads)
	w.leave(earlier)
	next := w.pod("db-0", 1)
	w.drain(1, true)
	w.evictor.Cache = shows
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if !w.isMarked(next) {
		t.Error("the operator of the pod that is there is not asked")
	}
	w.leave(next)
	w.evict("db-0", verdict.Gone, verdict.NoPod)
	w.evictor.Cache = fake.NewClientBuilder().WithScheme(w.Client.Scheme()).Build()
	last := w.pod("db-1", 1)
	w.evict("db-1", verdict.Wait, verdict.Requested)
	if !w.isMarked(last) {
		t.Error("the operator of the pod that is not shown yet is not asked")
	}
}

// TestAPodThatKeepsChanging has a conflict in every round: the response must not claim that the operator has a request.
func TestAPodThatKeepsChanging(t *testing.T) {
	w, p := newDrain(t, nil)
	w.Fail = func(n int) (before, after error) {
		if n == 0 { // The request is created. The mark is refused.
			return nil, nil
		}
		return apierrors.NewConflict(corev1.Resource("pods"), p.Name, nil), nil
	}
	if resp := w.evict("db-0", verdict.Wait, verdict.Waiting); resp.Write != verdict.None || !strings.Contains(resp.Cause, "keeps changing") {
		t.Errorf("got %+v", resp.Decision)
	}
}

// TestFailedReadIsNotGone has reads that fail. The pod must not count as gone, nor as unselected, and its Node
// neither as draining nor as healthy.
func TestFailedReadIsNotGone(t *testing.T) {
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
			w, p := newDrain(t, nil)
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
			resp, err := w.try(p.Name)
			if errors.Is(err, broken) != (tc.said == "") || resp.Outcome != tc.said || err == nil && resp.Answer != verdict.Wait {
				t.Errorf("got %+v, %v", resp.Decision, err)
			}
			w.wantWrites()
		})
	}
}

// TestTerminatingNamespaceAllowsEviction has a namespace that is deleted with its pods.
func TestTerminatingNamespaceAllowsEviction(t *testing.T) {
	w, _ := newDrain(t, nil)
	w.Must(w.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	w.evict("db-0", verdict.Allow, verdict.NotRunning)
}

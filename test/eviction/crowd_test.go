// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/operator"
)

// TestManyEvictionsAtOnce evicts each of ten pods twenty times in parallel, half of them through each replica. No
// answer reports a pod as gone, and each pod is marked once. No other test runs at the same time.
func TestManyEvictionsAtOnce(t *testing.T) {
	const pods, evictions = 10, 20
	l := newLab(t, shared, 1)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
	l.cordon(true, l.nodes[0])
	all := make([]*corev1.Pod, pods)
	for i := range all {
		all[i] = l.run(fmt.Sprintf("db-%d", i), l.nodes[0], labels)
	}
	l.known(all[pods-1])
	var mu sync.Mutex
	answers := map[int32]int{}
	var wg sync.WaitGroup
	count := func(code int32, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		answers[code]++
	}
	for _, pod := range all {
		for i := range evictions {
			wg.Go(func() {
				if i%4 == 0 { // The API server has one connection, and so uses one replica.
					status, err := l.tryEvict(l.t.Context(), pod.Name)
					count(code(status), err)
					return
				}
				answer, err := sendReview(l.t.Context(), l.guard.Replicas[i%2], review(pod))
				if err != nil {
					count(0, err)
					return
				}
				if answer.Result.Code != http.StatusTooManyRequests {
					t.Errorf("%s: %s", pod.Name, answer.Result.Message)
				}
				count(answer.Result.Code, nil)
			})
		}
	}
	wg.Wait()
	if answers[http.StatusTooManyRequests] != pods*evictions {
		t.Errorf("got %v, want %d times 429", answers, pods*evictions)
	}
	// On a busy machine some answers are 429 before the pod is marked.
	for _, pod := range all {
		l.eventually(http.StatusTooManyRequests, waiting, pod.Name)
	}
	if r := l.requests(); len(r) != pods {
		t.Errorf("there are %d requests, want %d", len(r), pods)
	}
	patched := map[string]int{}
	for _, w := range l.writes() {
		if strings.HasPrefix(w, "patch pods") && strings.HasSuffix(w, ": 200") {
			patched[w]++
		}
	}
	for _, pod := range all {
		if n := patched["patch pods "+pod.Name+": 200"]; n != 1 {
			t.Errorf("%s was written to %d times, want once", pod.Name, n)
		}
	}
}

// TestWhoTriesAgainAtOnce evicts as fast as it can, as some programs do with kubectl's library.
func TestWhoTriesAgainAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy()
	l.cordon(true, l.nodes[0])
	l.protected("db", l.nodes[0])
	l.evictUntilMarked("db")
	tries := 0
	l.unchanged(func() {
		for begin := time.Now(); time.Since(begin) < 2*time.Second; tries++ {
			l.want(http.StatusTooManyRequests, waiting, l.evict("db"))
		}
	})
	t.Logf("%d tries", tries)
}

// TestLongNames has a pod and a namespace with names of the maximum length.
func TestLongNames(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	long := *l
	long.ns = (l.ns + strings.Repeat("n", 63))[:63]
	long.must(long.Client.Create(long.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: long.ns, Labels: map[string]string{evictionv1.GuardedLabel: "enabled"}}}))
	long.must(long.Wait(long.ctx(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: long.ns, Name: "default"}}, func() error { return nil }))
	long.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
	long.cordon(true, l.nodes[0])
	name := strings.Repeat(strings.Repeat("p", 62)+".", 4) + "p"
	long.protected(name, l.nodes[0], func(p *corev1.Pod) { p.Spec.NodeSelector = nil })
	if len(name) != 253 {
		t.Fatal(len(name))
	}
	long.evictUntilMarked(name)
	long.want(http.StatusTooManyRequests, waiting, long.evict(name))
	long.wantAsked(true, name)
}

// TestOneAtATime has a policy with maxConcurrent 1, and two draining Nodes.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 3)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	for i := range 4 {
		l.protected(fmt.Sprintf("db-%d", i), l.nodes[i%2], func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = new(int64(0)) // A pod that is being deleted may be evicted.
		})
	}
	most := make(chan int, 1)
	watching, stop := context.WithCancel(t.Context())
	go func() { most <- l.mostAsked(watching) }()
	op := l.operator(func(o *operator.Options) { o.Delay = 500 * time.Millisecond })
	l.cordon(true, l.nodes[:2]...)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for l.t.Context().Err() == nil {
				status, err := l.tryEvict(l.t.Context(), fmt.Sprintf("db-%d", i))
				if err != nil {
					t.Error(err)
					return
				}
				if code(status) == http.StatusNotFound {
					return
				}
				l.want(http.StatusTooManyRequests, "", status)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	stop()
	if n := <-most; n != 1 {
		t.Errorf("the operator was asked for %d pods at once, want 1", n)
	}
	l.settled(op, 4, l.nodes[:2]...)
}

// mostAsked returns the largest number of pods that were marked at the same time, until ctx ends.
func (l *lab) mostAsked(ctx context.Context) (most int) {
	w, err := l.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(l.ns))
	if err != nil {
		l.t.Error(err)
		return 0
	}
	defer w.Stop()
	asked := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return most
		case e := <-w.ResultChan():
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				return most
			}
			if e.Type == "DELETED" || pod.Annotations[operator.RescheduleAnnotation] == "" {
				delete(asked, pod.Name)
			} else {
				asked[pod.Name] = true
			}
			most = max(most, len(asked))
		}
	}
}

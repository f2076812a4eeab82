// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestAStormOfEvictions has 300 pods of a policy with maxConcurrent 1, and an operator that does nothing. It evicts 200
// times per second, or 40 times with -short. No pod is evicted, one pod is marked, and both replicas survive.
func TestAStormOfEvictions(t *testing.T) {
	const pods, seconds = 300, 10
	rate := testenv.Shorter(200, 40)
	l := newLab(t, ownWorld(t, guardOptions()), 1)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	l.cordon(true, l.nodes[0])
	var working sync.WaitGroup
	for i := range 8 {
		working.Go(func() {
			for n := i; n < pods; n += 8 {
				l.start(fmt.Sprintf("db-%d", n))
			}
		})
	}
	working.Wait()
	l.known(l.run("last", l.nodes[0], labels))
	pids := map[string]int{}
	for _, r := range l.guard.Replicas {
		pids[r.Name()] = r.PID()
	}

	var mu sync.Mutex
	var times []time.Duration
	answers := map[int32]int{}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := range rate * seconds {
		<-tick.C
		working.Go(func() {
			begin := time.Now()
			status, err := l.tryEvict(t.Context(), fmt.Sprintf("db-%d", i*7%pods))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			answers[code(status)]++
			times = append(times, time.Since(begin))
		})
	}
	working.Wait()

	slices.Sort(times)
	t.Logf("%v; p50 %s, p99 %s, longest %s", answers, times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
	if answers[http.StatusTooManyRequests] != rate*seconds {
		t.Errorf("got %v, want %d times 429", answers, rate*seconds)
	}
	left, marked := &corev1.PodList{}, 0
	l.must(l.Client.List(l.ctx(), left, client.InNamespace(l.ns)))
	for i := range left.Items {
		if left.Items[i].Annotations[evictionv1.RequestedAnnotation] != "" {
			marked++
		}
		if left.Items[i].DeletionTimestamp != nil {
			t.Errorf("%s is evicted", left.Items[i].Name)
		}
	}
	if len(left.Items) != pods+1 || marked != 1 {
		t.Errorf("%d pods are left, and %d are asked for, want %d and 1", len(left.Items), marked, pods+1)
	}
	for _, r := range l.guard.Replicas {
		for line := range strings.SplitSeq(l.metrics(r), "\n") {
			if strings.HasPrefix(line, "fivespot_eviction_duration_seconds_bucket") || strings.HasPrefix(line, "fivespot_eviction_verdicts_total") {
				t.Logf("%s: %s", r.Name(), line)
			}
		}
		if r.PID() != pids[r.Name()] || syscall.Kill(r.PID(), 0) != nil {
			t.Errorf("%s has ended", r.Name())
		}
	}
}

// metrics returns the metrics of a replica.
func (l *lab) metrics(r *system.GuardReplica) string {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.ctx(), http.MethodGet, "http://"+r.Metrics+"/metrics", nil)
	l.must(err)
	res, err := http.DefaultClient.Do(req)
	l.must(err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	l.must(err)
	return string(text)
}

// start creates a pod that runs at once, without its kubelet, which would take a while for hundreds of pods.
func (l *lab) start(name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name, Labels: labels}}
	pod.Spec = corev1.PodSpec{NodeName: l.nodes[0], Containers: []corev1.Container{{Name: "main", Image: "x"}}}
	if err := l.Client.Create(l.t.Context(), pod); err != nil {
		l.t.Error(err)
		return
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	if err := l.Client.Status().Patch(l.t.Context(), pod, client.MergeFrom(before)); err != nil {
		l.t.Error(err)
	}
}

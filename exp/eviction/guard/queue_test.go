// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
)

// TestACrowdSharesAnAnswer has many concurrent evictions of one pod: there are two decisions, and each caller gets one
// that began after its call.
func TestACrowdSharesAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		decisions := 0
		begun := map[string]time.Time{}
		q := &decisionQueue{slots: make(chan struct{}, 100), decide: func(_ context.Context, w eviction.Attempt) (eviction.Response, error) {
			mu.Lock()
			decisions++
			name := fmt.Sprint(w.Pod.Name, decisions)
			begun[name] = time.Now()
			mu.Unlock()
			time.Sleep(time.Second)
			s := eviction.Response{}
			s.Message = name
			return s, nil
		}}
		var wg sync.WaitGroup
		for i := range 20 {
			for _, pod := range []string{"a", "b"} {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					asked := time.Now()
					resp, err := q.evict(t.Context(), eviction.Attempt{Pod: client.ObjectKey{Name: pod}, By: fmt.Sprint(i)}, time.Minute)
					mu.Lock()
					defer mu.Unlock()
					if at, ok := begun[resp.Message]; err != nil || !ok || at.Before(asked) || resp.Message[:1] != pod {
						t.Errorf("%s, who asked at %s, got %q of %s, %v", pod, asked, resp.Message, at, err)
					}
				})
			}
		}
		wg.Wait()
		if decisions != 4 || len(q.pods) != 0 {
			t.Errorf("%d decisions, want two for each pod; %d pods are kept", decisions, len(q.pods))
		}
	})
}

// TestWaitEndsWithContextOfCaller checks that a caller waits no longer than its own context.
func TestWaitEndsWithContextOfCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &decisionQueue{slots: make(chan struct{}, 100), decide: func(ctx context.Context, _ eviction.Attempt) (eviction.Response, error) {
			<-ctx.Done()
			return eviction.Response{}, ctx.Err()
		}}
		begin := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				if _, err := q.evict(ctx, eviction.Attempt{}, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestIncompleteDecisionIsAnError has a decision that does not complete: each caller that shares it gets an error.
func TestIncompleteDecisionIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &decisionQueue{slots: make(chan struct{}, 100), decide: func(context.Context, eviction.Attempt) (eviction.Response, error) {
			time.Sleep(time.Second)
			panic("half way")
		}}
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				defer func() { _ = recover() }()
				if _, err := q.evict(t.Context(), eviction.Attempt{}, time.Minute); err == nil {
					t.Errorf("%d is let go", i)
				}
			})
		}
		wg.Wait()
	})
}

// uncached is a cache that decides no eviction.
func uncached(context.Context, eviction.Attempt) (eviction.Response, eviction.CacheAnswer, error) {
	return eviction.Response{}, eviction.Undecided, nil
}

// TestCodeOfFailure checks the code of an error: 500 if a person must act, because it ends kubectl drain; otherwise
// 429.
func TestCodeOfFailure(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	limited := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://127.0.0.1:1", QPS: 0.001, Burst: 1})
	_, _ = limited.CoreV1().Pods("db").Get(t.Context(), "db-0", metav1.GetOptions{})
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, own := limited.CoreV1().Pods("db").Get(soon, "db-0", metav1.GetOptions{})
	for name, tc := range map[string]struct {
		err  error
		code int32
	}{
		"Forbidden":   {apierrors.NewForbidden(pods, "db-0", errors.New("no")), http.StatusInternalServerError},
		"Unreachable": {errors.New("dial tcp: connection refused"), http.StatusTooManyRequests},
		"Rolled":      {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), http.StatusTooManyRequests},
		"Deadline":    {context.DeadlineExceeded, http.StatusTooManyRequests},
		"OwnLimit":    {own, http.StatusTooManyRequests},
		"Throttled":   {apierrors.NewTooManyRequests("wait", 1), http.StatusTooManyRequests},
		"ServerBusy":  {apierrors.NewServerTimeout(pods, "get", 1), http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			a := &admitter{clock: clock.RealClock{}, reporter: &reporter{}, cached: uncached, queue: decisionQueue{slots: make(chan struct{}, 100), decide: func(context.Context, eviction.Attempt) (eviction.Response, error) {
				return eviction.Response{}, fmt.Errorf("reading pod: %w", tc.err)
			}}}
			r := a.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Namespace: "db", Name: "db-0", Object: runtime.RawExtension{Raw: []byte("{}")},
			}})
			if r.Allowed || r.Result.Code != tc.code || r.Result.Details != nil {
				t.Errorf("got %+v, want %d", r.Result, tc.code)
			}
		})
	}
}

// TestBusyAnswerComesBeforeWebhookTimeout has an API server that does not answer, and more evictions than slots. Each
// gets its answer long before the webhook's timeout, after which the API server would evict the pod.
func TestBusyAnswerComesBeforeWebhookTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, now atomic.Int32
		a := &admitter{clock: clock.RealClock{}, reporter: &reporter{}, cached: uncached, queue: decisionQueue{slots: make(chan struct{}, decisions), decide: func(ctx context.Context, _ eviction.Attempt) (eviction.Response, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-ctx.Done()
			return eviction.Response{}, ctx.Err()
		}}}
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				begin := time.Now()
				r := a.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
					Namespace: "db", Name: fmt.Sprintf("db-%d", i), Object: runtime.RawExtension{Raw: []byte("{}")},
				}})
				if took := time.Since(begin); r.Allowed || r.Result.Code != http.StatusTooManyRequests || took > callTimeout {
					t.Errorf("after %s: %+v", took, r.Result)
				}
			})
		}
		wg.Wait()
		if most.Load() != decisions {
			t.Errorf("%d were decided at a time, want %d", most.Load(), decisions)
		}
	})
}

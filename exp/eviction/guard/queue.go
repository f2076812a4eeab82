// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
)

const (
	// decisions bounds parallel decisions from live reads. More are not faster: the API server of a small cluster is
	// the limit.
	decisions = 8
	// maxWait is how long an eviction waits for a slot before it gets a 429. After the timeout of the webhook the
	// API server would evict the pod.
	maxWait = 500 * time.Millisecond
)

var (
	errUndecided = errors.New("nothing was decided")
	errBusy      = errors.New("eviction guard: the pod is left where it is, because too many evictions are being decided: try again")
)

// A decisionQueue runs one decision at a time for each pod, UID precondition and dry run. Requests that arrive meanwhile share the next decision, which
// reads its facts after they arrived. Any number of equal concurrent evictions thus costs the API server at most two
// decisions.
type decisionQueue struct {
	decide func(context.Context, eviction.Attempt) (eviction.Response, error)
	// slots bounds parallel decisions.
	slots chan struct{}

	mu   sync.Mutex
	pods map[eviction.Attempt]*turn
}

// A turn is a running decision. next is the decision after it.
type turn struct {
	done chan struct{}
	resp eviction.Response
	err  error
	next *turn
}

// evict decides on an eviction. ctx cancels the wait for another caller's decision, and the decision that this caller
// runs. A caller that shares the decision then gets the error, and its client retries. wait bounds the time in the
// queue. With zero, evict also returns errBusy if a decision on this pod is running.
func (q *decisionQueue) evict(ctx context.Context, w eviction.Attempt, wait time.Duration) (eviction.Response, error) {
	key := w
	key.By = ""
	own := &turn{done: make(chan struct{})}
	q.mu.Lock()
	running := q.pods[key]
	switch {
	case running == nil:
		if q.pods == nil {
			q.pods = map[eviction.Attempt]*turn{}
		}
		q.pods[key] = own
		q.mu.Unlock()
	case wait == 0:
		q.mu.Unlock()
		return eviction.Response{}, errBusy
	case running.next == nil:
		running.next = own
		q.mu.Unlock()
		<-running.done // The context of its caller ends it.
	default:
		next := running.next
		q.mu.Unlock()
		select {
		case <-next.done:
			return next.resp, next.err
		case <-ctx.Done():
			return eviction.Response{}, ctx.Err()
		}
	}
	q.take(ctx, key, w, own, wait)
	return own.resp, own.err
}

// take runs the decision of a turn, and then makes the next turn the current one.
func (q *decisionQueue) take(ctx context.Context, key, w eviction.Attempt, t *turn, wait time.Duration) {
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if t.next == nil {
			delete(q.pods, key)
		} else {
			q.pods[key] = t.next
		}
		close(t.done)
	}()
	if t.err = q.acquire(ctx, wait); t.err != nil {
		return
	}
	defer func() { <-q.slots }()
	t.err = errUndecided // remains if decide panics
	t.resp, t.err = q.decide(ctx, w)
}

// acquire waits for a slot, and returns errBusy after wait.
func (q *decisionQueue) acquire(ctx context.Context, wait time.Duration) error {
	select {
	case q.slots <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case q.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errBusy
	}
}

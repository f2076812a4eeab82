// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"sync"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
)

// errUndecided says that nobody knows.
var errUndecided = errors.New("nothing was decided")

// A queue decides about each pod once at a time. Those who ask about it meanwhile share the next
// answer: all that it rests on is read after each of them has asked. Else a crowd that evicts the
// same pods would have the API server answer so many questions that nobody got an answer in time.
type queue struct {
	decide func(context.Context, eviction.Wanted) (eviction.Said, error)

	mu   sync.Mutex
	pods map[eviction.Wanted]*turn
}

// A turn is a decision that is being made, and the one after it.
type turn struct {
	done chan struct{}
	said eviction.Said
	err  error
	next *turn
}

// evict says what is said to somebody who wants to evict a pod. ctx ends the wait, and the decision
// if it is nobody else's.
func (q *queue) evict(ctx context.Context, w eviction.Wanted) (eviction.Said, error) {
	key := w
	key.By = ""
	q.mu.Lock()
	now, busy := q.pods[key]
	switch {
	case !busy:
		now = &turn{done: make(chan struct{})}
		if q.pods == nil {
			q.pods = map[eviction.Wanted]*turn{}
		}
		q.pods[key] = now
		q.mu.Unlock()
		q.take(ctx, key, w, now)
		return now.said, now.err
	case now.next == nil:
		next := &turn{done: make(chan struct{})}
		now.next = next
		q.mu.Unlock()
		<-now.done // It has an end: that of whoever takes it.
		q.take(ctx, key, w, next)
		return next.said, next.err
	default:
		next := now.next
		q.mu.Unlock()
		select {
		case <-next.done:
			return next.said, next.err
		case <-ctx.Done():
			return eviction.Said{}, ctx.Err()
		}
	}
}

// take decides, and has the next go on.
func (q *queue) take(ctx context.Context, key, w eviction.Wanted, t *turn) {
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
	t.err = errUndecided // Unless it is decided, whatever becomes of decide.
	t.said, t.err = q.decide(ctx, w)
}

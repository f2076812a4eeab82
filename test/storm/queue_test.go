// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"container/heap"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A queue is a controller's queue in simulated time. The controller's workers get no items from it: the world takes due
// items and calls the reconciler.
type queue struct {
	now     func() time.Time
	limiter workqueue.TypedRateLimiter[ctrl.Request]

	mu    sync.Mutex
	ready []ctrl.Request
	has   map[ctrl.Request]bool
	due   map[ctrl.Request]time.Time
	later agenda[ctrl.Request]

	// waiting is closed when a worker waits, over when the workers may end.
	waiting, over chan struct{}
	once, end     sync.Once
}

func newQueue(now func() time.Time, limiter workqueue.TypedRateLimiter[ctrl.Request]) *queue {
	return &queue{
		now: now, limiter: limiter, has: map[ctrl.Request]bool{}, due: map[ctrl.Request]time.Time{},
		waiting: make(chan struct{}), over: make(chan struct{}),
	}
}

func (q *queue) Add(req ctrl.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(req)
}

func (q *queue) add(req ctrl.Request) {
	delete(q.due, req)
	if !q.has[req] {
		q.has[req] = true
		q.ready = append(q.ready, req)
	}
}

// AddAfter keeps the earliest instant, as the real queue does.
func (q *queue) AddAfter(req ctrl.Request, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.now().Add(d)
	if was, waits := q.due[req]; q.has[req] || waits && !at.Before(was) {
		return
	}
	q.due[req] = at
	q.later.put(at, req)
}

func (q *queue) AddRateLimited(req ctrl.Request) { q.AddAfter(req, q.limiter.When(req)) }

func (q *queue) Forget(req ctrl.Request) { q.limiter.Forget(req) }

func (q *queue) NumRequeues(req ctrl.Request) int { return q.limiter.NumRequeues(req) }

func (q *queue) Done(ctrl.Request) {}

func (q *queue) Len() int { return 0 }

// Get is called by the workers of the controller.
func (q *queue) Get() (ctrl.Request, bool) {
	q.once.Do(func() { close(q.waiting) })
	<-q.over
	return ctrl.Request{}, true
}

func (q *queue) ShutDown() { q.end.Do(func() { close(q.over) }) }

func (q *queue) ShutDownWithDrain() { q.ShutDown() }

func (q *queue) ShuttingDown() bool {
	select {
	case <-q.over:
		return true
	default:
		return false
	}
}

// sorted sorts the ready items, so that their order does not depend on goroutines.
func (q *queue) sorted() {
	q.mu.Lock()
	defer q.mu.Unlock()
	slices.SortFunc(q.ready, func(a, b ctrl.Request) int { return strings.Compare(a.String(), b.String()) })
}

// wake moves due items to the ready ones, and returns the number of ready items.
func (q *queue) wake() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	for at, ok := q.later.next(); ok && !at.After(q.now()); at, ok = q.later.next() {
		if req := q.later.take(); q.due[req].Equal(at) {
			q.add(req)
		}
	}
	return len(q.ready)
}

// take takes one ready item.
func (q *queue) take(n int) ctrl.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	req, last := q.ready[n], len(q.ready)-1
	q.ready[n] = q.ready[last]
	q.ready = q.ready[:last]
	delete(q.has, req)
	return req
}

func (q *queue) next() (time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.later.next()
}

// An agenda holds items with their time. Items of the same time stay in the order of insertion.
type agenda[T any] struct {
	items entries[T]
	count int
}

type entry[T any] struct {
	at   time.Time
	n    int
	what T
}

func (a *agenda[T]) put(at time.Time, what T) {
	a.count++
	heap.Push(&a.items, entry[T]{at, a.count, what})
}

func (a *agenda[T]) next() (time.Time, bool) {
	if len(a.items) == 0 {
		return time.Time{}, false
	}
	return a.items[0].at, true
}

func (a *agenda[T]) take() T { return heap.Pop(&a.items).(entry[T]).what }

type entries[T any] []entry[T]

func (e entries[T]) Len() int { return len(e) }
func (e entries[T]) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].n < e[j].n
}
func (e entries[T]) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *entries[T]) Push(x any)   { *e = append(*e, x.(entry[T])) }
func (e *entries[T]) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

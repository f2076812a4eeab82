// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// fresh is how long a result is shared. It is a third of the interval between two reads of a draining target. If
	// fifty machines leave at the same time, each group is read once for all of them. That preserves the account's
	// request limit.
	fresh = 5 * time.Second
	// stale is how long a result is shared after a recent error. A region may have more groups than the request limit
	// allows at once, so it is read in parts.
	stale = time.Minute
)

// shared caches the results of requests by key, and runs one request at a time. It is safe for concurrent use.
type shared[T any] struct {
	now func() time.Time
	sem chan struct{}

	mu      sync.Mutex
	results map[string]result[T]
	writes  int
	failed  time.Time
}

// result is a result and its time.
type result[T any] struct {
	value T
	err   error
	at    time.Time
}

func newShared[T any](now func() time.Time) *shared[T] {
	return &shared[T]{now: now, sem: make(chan struct{}, 1), results: map[string]result[T]{}}
}

// get returns a fresh result, or sends the request. It also caches throttling errors, so that waiting callers do not
// repeat the request. It returns the context's error if ctx ends before its turn.
func (s *shared[T]) get(ctx context.Context, key string, request func() (T, error)) (T, error) {
	select {
	case s.sem <- struct{}{}:
		defer func() { <-s.sem }()
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	known, writes, ok := s.known(key)
	if ok {
		return known.value, known.err
	}
	value, err := request()
	s.store(writes, key, result[T]{value, err, s.now()})
	return value, err
}

// known returns the cached result, the number of writes so far, and whether the result is fresh.
func (s *shared[T]) known(key string) (result[T], int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.results[key]
	now, maxAge := s.now(), fresh
	if known.err == nil && now.Sub(s.failed) < stale {
		maxAge = stale
	}
	return known, s.writes, ok && now.Sub(known.at) < maxAge
}

// store caches a result, unless a write has happened since the request was sent.
func (s *shared[T]) store(writes int, key string, a result[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.results, func(_ string, old result[T]) bool { return a.at.Sub(old.at) >= stale })
	if a.err != nil {
		s.failed = a.at
	}
	if s.writes == writes && (a.err == nil || isThrottled(a.err)) {
		s.results[key] = a
	}
}

// forget drops a result because a write changes it. Call it before the write, so that no older result is cached, and
// after the write.
func (s *shared[T]) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	delete(s.results, key)
}

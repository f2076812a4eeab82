// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// fresh is how long an answer is good for everybody who asks the same: a third of the
	// time between two looks. When fifty machines leave at five o'clock, a group is looked at
	// once for all of them, and what AWS grants an account is left to others.
	fresh = 5 * time.Second
	// stale is how long it is good while questions stay open. A region has more groups than
	// can be asked for at once, and is read in parts.
	stale = time.Minute
)

// shared are answers for everybody who asks the same. One question is asked at a time.
type shared[T any] struct {
	now  func() time.Time
	turn chan struct{}

	mu      sync.Mutex
	answers map[string]answer[T]
	writes  int
	failed  time.Time
}

// answer is what was said, and when.
type answer[T any] struct {
	value T
	err   error
	at    time.Time
}

func newShared[T any](now func() time.Time) *shared[T] {
	return &shared[T]{now: now, turn: make(chan struct{}, 1), answers: map[string]answer[T]{}}
}

// get returns a fresh answer, or asks. That AWS wants us to slow down is an answer too: it
// is not asked again by everybody who waits for their turn.
func (s *shared[T]) get(ctx context.Context, question string, ask func() (T, error)) (T, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	known, writes, ok := s.known(question)
	if ok {
		return known.value, known.err
	}
	value, err := ask()
	s.keep(writes, question, answer[T]{value, err, s.now()})
	return value, err
}

// known returns a fresh answer if there is one, and how often something was written.
func (s *shared[T]) known(question string) (answer[T], int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.answers[question]
	now, good := s.now(), fresh
	if known.err == nil && now.Sub(s.failed) < stale {
		good = stale
	}
	return known, s.writes, ok && now.Sub(known.at) < good
}

// keep keeps an answer, unless something was written since the question.
func (s *shared[T]) keep(writes int, question string, a answer[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.answers, func(_ string, old answer[T]) bool { return a.at.Sub(old.at) >= stale })
	if a.err != nil {
		s.failed = a.at
	}
	if s.writes == writes && (a.err == nil || isThrottled(a.err)) {
		s.answers[question] = a
	}
}

// forget has a question asked again, because what it is about was written. It is said
// before the write, so that no answer from before it is kept, and after.
func (s *shared[T]) forget(question string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	delete(s.answers, question)
}

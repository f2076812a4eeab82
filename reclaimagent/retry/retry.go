// SPDX-License-Identifier: Apache-2.0

// Package retry answers one question: when is the next try? It knows nothing
// about what is tried.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff doubles the time between tries from First to Last. One goroutine
// may use it.
type Backoff struct {
	First, Last time.Duration
	next        time.Duration
}

// Next returns the time until the next try, jittered.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.First)
	b.next = min(2*d, b.Last)
	return Jitter(d)
}

// Reset starts again from First.
func (b *Backoff) Reset() { b.next = 0 }

// Jitter spreads d, which must be positive, over half to one and a half of it,
// so that a hundred agents that lost the same server do not come back at the
// same instant.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d) //nolint:gosec // nobody gains by guessing it
}

// Sleep waits for d, or until ctx is done, whose error it then returns.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

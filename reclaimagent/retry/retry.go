// SPDX-License-Identifier: Apache-2.0

// Package retry computes the delays of retries with exponential backoff and jitter.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff doubles the delay from First to Last. It is not safe for concurrent use.
type Backoff struct {
	First, Last time.Duration
	next        time.Duration
}

// Next returns the delay before the next retry, with jitter.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.First)
	b.next = min(2*d, b.Last)
	return Jitter(d)
}

// Reset starts again with First.
func (b *Backoff) Reset() { b.next = 0 }

// Jitter returns a random duration between half and one and a half of d, which must be positive. It prevents many
// agents from reconnecting to the same server at the same time.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d) //nolint:gosec // not a secret
}

// Sleep waits for d. If ctx is done first, it returns the context's error.
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

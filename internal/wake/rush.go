// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"sync/atomic"
	"time"
)

const (
	// longestRush bounds how long what is told of an owner's request waits for other owners.
	longestRush = time.Minute
	// rushLook is how long to wait before looking whether the rush is over. There is
	// no instant to wait for, and a look costs the API server nothing.
	rushLook = time.Second
)

// Rush knows whether several owners are waiting for their machines at this moment. A
// report then waits: it costs the API server as much as taking a machine away. When
// two hundred owners came back at once, a quarter of the requests before the last
// machine was taken away were reports of ours. It also knows which of them wait in vain,
// and why, for whoever reports on their machines. The zero value is ready for use, nil
// knows of no owner, and it is safe for concurrent use.
type Rush struct {
	owners atomic.Int64
	stalls stalls
}

// Serve says that an owner is being served, until done is called.
func (r *Rush) Serve() (done func()) {
	if r == nil {
		return func() {}
	}
	r.owners.Add(1)
	return func() { r.owners.Add(-1) }
}

// Wait returns how long everything else about a machine waits before it looks again,
// zero if it does not. Its owner asked for it at the given instants, in their order.
func (r *Rush) Wait(asked []time.Time, now time.Time) time.Duration {
	if r == nil || r.owners.Load() < 2 {
		return 0
	}
	return min(Left(longestRush, asked, now), rushLook)
}

// Left returns how much of d is left since the last of the given instants: zero without
// one, and if it is in the future, where a clock was wrong.
func Left(d time.Duration, instants []time.Time, now time.Time) time.Duration {
	if len(instants) == 0 {
		return 0
	}
	left := instants[len(instants)-1].Add(d).Sub(now)
	if left > d {
		return 0
	}
	return max(left, 0)
}

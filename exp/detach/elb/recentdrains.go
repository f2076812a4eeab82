// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/aws/smithy-go"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// lag is how long after a write AWS may still report the previous state. AWS documents no bound; usually it is one or
// two seconds.
const lag = 15 * time.Second

// recentDrains holds the memberships that were deregistered within the last lag. AWS may still report them as
// registered. Without it, a restore in that time would see the membership as Attached and remove it from the record.
type recentDrains struct {
	now func() time.Time

	mu sync.Mutex
	at map[balancer.Membership]time.Time
}

func newRecentDrains(now func() time.Time) *recentDrains {
	return &recentDrains{now: now, at: map[balancer.Membership]time.Time{}}
}

// out reports whether a membership was deregistered within the last lag.
func (t *recentDrains) out(m balancer.Membership) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.at[key(m)]
	return ok && t.now().Sub(at) < lag
}

// take records the memberships as deregistered and runs call. It removes them again if AWS rejects the call. After any
// other error, they stay, because AWS may have done it.
func (t *recentDrains) take(members []balancer.Membership, call func() error) error {
	t.mu.Lock()
	now := t.now()
	maps.DeleteFunc(t.at, func(_ balancer.Membership, at time.Time) bool { return now.Sub(at) >= lag })
	for _, m := range members {
		t.at[key(m)] = now
	}
	t.mu.Unlock()
	err := call()
	if _, refused := errors.AsType[smithy.APIError](err); refused {
		t.forget(members)
	}
	return err
}

// forget removes memberships that are restored, or were not deregistered.
func (t *recentDrains) forget(members []balancer.Membership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range members {
		delete(t.at, key(m))
	}
}

// key returns the membership without the fields that only Restore needs.
func key(m balancer.Membership) balancer.Membership {
	return balancer.Membership{Pool: m.Pool, Member: *target(m).Id, Port: m.Port}
}

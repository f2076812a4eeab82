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

// lag is how long an answer may be from before a write. AWS names no bound: it is mostly a
// second or two.
const lag = 15 * time.Second

// told are the places that were taken out a moment ago. AWS still shows them as they were.
// Who believes that, and gives such a place back because its Node stays after all, would
// think that it has it.
type told struct {
	now func() time.Time

	mu sync.Mutex
	at map[balancer.Membership]time.Time
}

func newTold(now func() time.Time) *told {
	return &told{now: now, at: map[balancer.Membership]time.Time{}}
}

// out says whether a place was taken out a moment ago.
func (t *told) out(m balancer.Membership) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.at[key(m)]
	return ok && t.now().Sub(at) < lag
}

// take calls what takes places out. They count as out unless AWS refused.
func (t *told) take(members []balancer.Membership, call func() error) error {
	t.note(members)
	err := call()
	if _, refused := errors.AsType[smithy.APIError](err); refused {
		t.forget(members)
	}
	return err
}

func (t *told) note(members []balancer.Membership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	maps.DeleteFunc(t.at, func(_ balancer.Membership, at time.Time) bool { return now.Sub(at) >= lag })
	for _, m := range members {
		t.at[key(m)] = now
	}
}

// forget is for places that are given back, or were not taken.
func (t *told) forget(members []balancer.Membership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range members {
		delete(t.at, key(m))
	}
}

// key is the place itself, without what is only written down to make it again.
func key(m balancer.Membership) balancer.Membership {
	return balancer.Membership{Pool: m.Pool, Member: *target(m).Id, Port: m.Port}
}

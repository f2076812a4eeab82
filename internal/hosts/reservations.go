// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"sync"
	"time"
)

// noted is how long a note is valid. That is longer than a cache may lag: after it, every reconcile sees the created
// object. A ScheduledMachine that is paused, edited or unreadable after its note must not block the host for
// longer.
const noted = time.Minute

// A Reservations records which claim is about to use a host. Two claims that start at the same moment may not see each
// other in the cache. The Reservations rejects the second. The zero value is ready for use. It is safe for concurrent
// use. It is in memory only: after a restart the created objects are visible. A note expires after a minute if
// it is not renewed.
type Reservations struct {
	mu sync.Mutex
	by map[string]note     // owner of each ID, by the key of the ID
	of map[string][]string // keys of the IDs that each owner has
}

type note struct {
	who string
	at  time.Time
}

func (n note) counts(now time.Time) bool { return now.Before(n.at.Add(noted)) }

// Take records that a claim is about to use the host of ids, and drops its earlier notes. It returns false if
// another claim has a valid note of one of the ids.
func (b *Reservations) Take(who string, ids []ID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if other, taken := b.by[id.Key()]; taken && other.who != who && other.counts(now) {
			return false
		}
	}
	b.leave(who)
	if b.by == nil {
		b.by, b.of = map[string]note{}, map[string][]string{}
	}
	for _, id := range ids {
		b.by[id.Key()] = note{who, now}
		b.of[who] = append(b.of[who], id.Key())
	}
	return true
}

// Leave drops the notes of a claim.
func (b *Reservations) Leave(who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(who)
}

func (b *Reservations) leave(who string) {
	for _, key := range b.of[who] {
		if b.by[key].who == who { // another may have it by now
			delete(b.by, key)
		}
	}
	delete(b.of, who)
}

// Taken returns the ids of which a claim has a valid note.
func (b *Reservations) Taken(who string, ids []ID, now time.Time) []ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.of[who]) == 0 {
		return nil
	}
	var taken []ID
	for _, id := range ids {
		if n := b.by[id.Key()]; n.who == who && n.counts(now) {
			taken = append(taken, id)
		}
	}
	return taken
}

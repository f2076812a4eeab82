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
	name string
	at   time.Time
}

func (n note) counts(now time.Time) bool { return now.Before(n.at.Add(noted)) }

// Take records that a claim is about to use the host of ids, and drops its earlier notes. It returns false if
// another claim has a valid note of one of the ids.
func (b *Reservations) Take(name string, ids []ID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if other, taken := b.by[id.Key()]; taken && other.name != name && other.counts(now) {
			return false
		}
	}
	b.leave(name)
	if b.by == nil {
		b.by, b.of = map[string]note{}, map[string][]string{}
	}
	for _, id := range ids {
		b.by[id.Key()] = note{name, now}
		b.of[name] = append(b.of[name], id.Key())
	}
	return true
}

// Leave drops the notes of a claim.
func (b *Reservations) Leave(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(name)
}

func (b *Reservations) leave(name string) {
	for _, key := range b.of[name] {
		if b.by[key].name == name { // another may have it by now
			delete(b.by, key)
		}
	}
	delete(b.of, name)
}

// Taken returns the ids of which a claim has a valid note.
func (b *Reservations) Taken(name string, ids []ID, now time.Time) []ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.of[name]) == 0 {
		return nil
	}
	var taken []ID
	for _, id := range ids {
		if n := b.by[id.Key()]; n.name == name && n.counts(now) {
			taken = append(taken, id)
		}
	}
	return taken
}

// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"sync"
	"time"
)

// noted is how long a note counts. It is for the moment until everybody can see what was
// made: a cache is late by less. Whoever is paused, edited or cannot be read after its note
// must not keep a host from others by it.
const noted = time.Minute

// A Book knows who is about to use a host. Two that begin in the same moment may not see
// each other yet; here the second is told. The zero value is ready for use, and it is
// safe for concurrent use. It is in memory only: what has begun can be seen after a
// restart. A note that nobody renews is forgotten after a minute.
type Book struct {
	mu sync.Mutex
	by map[string]note     // who has an ID, by its key
	of map[string][]string // the keys of who has any
}

type note struct {
	who string
	at  time.Time
}

func (n note) counts(now time.Time) bool { return now.Before(n.at.Add(noted)) }

// Take notes that who is about to use the host of ids, in place of what it took before,
// and reports whether it may: nobody else has noted the same.
func (b *Book) Take(who string, ids []ID, now time.Time) bool {
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

// Leave forgets what who has taken.
func (b *Book) Leave(who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(who)
}

func (b *Book) leave(who string) {
	for _, key := range b.of[who] {
		if b.by[key].who == who { // Another may have it by now.
			delete(b.by, key)
		}
	}
	delete(b.of, who)
}

// Taken returns those of ids that who has taken.
func (b *Book) Taken(who string, ids []ID, now time.Time) []ID {
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

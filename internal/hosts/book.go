// SPDX-License-Identifier: Apache-2.0

package hosts

import "sync"

// A Book knows who is about to use a host. Two that begin in the same moment may not see
// each other yet; here the second is told. The zero value is ready for use, and it is
// safe for concurrent use. It is in memory only: what has begun can be seen after a
// restart.
type Book struct {
	mu sync.Mutex
	by map[string]string   // who has an ID, by its key
	of map[string][]string // the keys of who has any
}

// Take notes that who is about to use the host of ids, in place of what it took before,
// and reports whether it may: nobody else has noted the same.
func (b *Book) Take(who string, ids []ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if other, taken := b.by[id.Key()]; taken && other != who {
			return false
		}
	}
	b.leave(who)
	if b.by == nil {
		b.by, b.of = map[string]string{}, map[string][]string{}
	}
	for _, id := range ids {
		b.by[id.Key()] = who
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
		delete(b.by, key)
	}
	delete(b.of, who)
}

// Taken returns those of ids that who has taken.
func (b *Book) Taken(who string, ids []ID) []ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []ID
	for _, id := range ids {
		if b.by[id.Key()] == who {
			taken = append(taken, id)
		}
	}
	return taken
}

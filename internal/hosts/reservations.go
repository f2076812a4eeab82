// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// lifetime is how long a reservation is valid. That is longer than a cache may lag: after it, every reconcile sees the
// created object. A ScheduledMachine that is paused, edited or unreadable after its reservation must not block the host
// for longer.
const lifetime = time.Minute

// Reservations records which claim is about to use a host. Two claims that start at the same moment may not see each
// other: the API server has no list by host, and the cache does not show the first object yet. The zero value is ready
// for use. It is safe for concurrent use. After a restart the created objects are visible.
type Reservations struct {
	mu sync.Mutex
	by map[ID]reservation
}

type reservation struct {
	name string
	at   time.Time
}

func (r reservation) valid(now time.Time) bool { return now.Before(r.at.Add(lifetime)) }

// Take reserves the host of ids for a claim, and drops its earlier reservations. It returns false if another claim has
// a valid reservation of one of the ids.
func (r *Reservations) Take(name string, ids []ID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(ids, func(id ID) bool { return r.by[id].name != name && r.by[id].valid(now) }) {
		return false
	}
	maps.DeleteFunc(r.by, func(_ ID, o reservation) bool { return o.name == name || !o.valid(now) })
	if r.by == nil {
		r.by = map[ID]reservation{}
	}
	for _, id := range ids {
		r.by[id] = reservation{name, now}
	}
	return true
}

// Leave drops the reservations of a claim.
func (r *Reservations) Leave(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.by, func(_ ID, o reservation) bool { return o.name == name })
}

// Taken returns the ids of which a claim has a valid reservation.
func (r *Reservations) Taken(name string, ids []ID, now time.Time) []ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id ID) bool { return r.by[id].name != name || !r.by[id].valid(now) })
}

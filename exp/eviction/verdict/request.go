// SPDX-License-Identifier: Apache-2.0

package verdict

import "time"

// Settle is how long after its withdrawal what was put on a pod is taken away. Who read the
// request before it was withdrawn has written by then, or has given up.
const Settle = 30 * time.Second

// look is how soon a request is looked at again of which nothing says when it changes: nobody
// watches all pods of a cluster for that.
const look = time.Minute

// RequestFacts are everything that the fate of a request depends on.
type RequestFacts struct {
	Now time.Time
	Request
	// WithdrawnAt is when it was withdrawn.
	WithdrawnAt time.Time
	// Pod is the one that has the name now, nil if there is none, and Same says that it is the one
	// that was asked for.
	Pod  *Pod
	Same bool
	// GoneSince is since when it is known to be gone.
	GoneSince time.Time
	// Selected says whether a policy asks for it still, and Deadline how long the operator has.
	Selected bool
	Deadline time.Duration
	// Keep is for how long a pod that was moved is not taken for one that is to be.
	Keep time.Duration
}

// A Fate is what becomes of a request.
type Fate int

const (
	// Stays leaves it.
	Stays Fate = iota
	// Withdraw says that nobody asks any more.
	Withdraw
	// TakeBack takes away what was put on the pod, and then deletes the request.
	TakeBack
	// Drop deletes the request: its pod is gone.
	Drop
)

// DecideRequest returns the fate of a request, and when time alone may change it.
func DecideRequest(k RequestFacts) (f Fate, again time.Time) {
	switch {
	case k.Pod == nil || !k.Same || k.Pod.Finished:
		return k.gone()
	case k.Withdrawn && k.WithdrawnAt.After(k.Now.Add(Settle)): // By a clock that was ahead.
		return Withdraw, time.Time{}
	case k.Withdrawn:
		if until := k.WithdrawnAt.Add(Settle); k.Now.Before(until) {
			return Stays, until
		}
		return TakeBack, time.Time{}
	case !k.Selected:
		return Withdraw, time.Time{}
	case k.Node == Healthy && (!k.Relocation || k.relocated()):
		return Withdraw, time.Time{}
	default:
		return Stays, k.next()
	}
}

// next is when a request is looked at again: once its operator has had its time, or after a while.
func (k RequestFacts) next() time.Time {
	again := k.Now.Add(look)
	if since := k.Asked(*k.Pod, k.Now); !since.IsZero() {
		if due := since.Add(k.Deadline); due.After(k.Now) && due.Before(again) {
			return due
		}
	}
	return again
}

// relocated reports whether a pod that was to leave a Node that nobody drains was not moved in time, and
// whoever evicts it has had the time to hear so.
func (k RequestFacts) relocated() bool {
	since := k.Asked(*k.Pod, k.Now)
	if since.IsZero() {
		since = k.Queued
	}
	return !k.Now.Before(since.Add(k.Deadline + k.Keep))
}

// gone is for a request whose pod has left its Node: it is kept while somebody may take the pod
// that took the name for the one that is to leave.
func (k RequestFacts) gone() (Fate, time.Time) {
	until := k.GoneSince.Add(k.Keep)
	if k.Pod != nil && !k.Same {
		until = k.Pod.Created.Add(k.Keep)
	}
	if k.Withdrawn || !k.Now.Before(until) {
		return Drop, time.Time{}
	}
	return Stays, until
}

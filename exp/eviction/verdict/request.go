// SPDX-License-Identifier: Apache-2.0

package verdict

import "time"

// Settle is how long after the withdrawal of a request the mark of its pod is removed. A guard that read the request before
// its withdrawal has written the mark by then, or its write has timed out.
const Settle = 30 * time.Second

// look is the interval of reconciles of a request without a known next change: there is no watch on all pods.
const look = time.Minute

// RequestFacts are the input of DecideRequest.
type RequestFacts struct {
	Now time.Time
	Request
	// WithdrawnAt is when it was withdrawn.
	WithdrawnAt time.Time
	// Pod has the name now, nil if there is none. Same: it has the UID of the request.
	Pod  *Pod
	Same bool
	// GoneSince is when the guard first saw that the pod is gone.
	GoneSince time.Time
	// Selected: a policy still selects the pod with the same request. Deadline is the time of the operator.
	Selected bool
	Deadline time.Duration
	// Keep is how long an eviction by name does not count for the pod that took the name of a moved pod.
	Keep time.Duration
}

// A Fate is the next step of a request.
type Fate int

const (
	// Stays changes nothing.
	Stays Fate = iota
	// Withdraw marks the request as withdrawn.
	Withdraw
	// TakeBack removes the mark of the pod, and then deletes the request.
	TakeBack
	// Drop deletes the request: its pod is gone.
	Drop
)

// DecideRequest returns the next step of a request, and when it may change without an event; zero is never.
func DecideRequest(k RequestFacts) (f Fate, again time.Time) {
	switch {
	case k.Pod == nil || !k.Same || k.Pod.Finished:
		return k.gone()
	case k.Withdrawn && k.WithdrawnAt.After(k.Now.Add(Settle)): // The clock of the withdrawal was ahead.
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

// next is when the request is reconciled again: at the deadline, or after look.
func (k RequestFacts) next() time.Time {
	again := k.Now.Add(look)
	if since := k.Asked(*k.Pod, k.Now); !since.IsZero() {
		if due := since.Add(k.Deadline); due.After(k.Now) && due.Before(again) {
			return due
		}
	}
	return again
}

// relocated reports whether the deadline of a relocation has passed, and Keep after it, in which the client gets the answer.
func (k RequestFacts) relocated() bool {
	since := k.Asked(*k.Pod, k.Now)
	if since.IsZero() {
		since = k.Queued
	}
	return !k.Now.Before(since.Add(k.Deadline + k.Keep))
}

// gone returns the next step of a request whose pod has left its Node. The request stays while an eviction by name may
// mean that pod.
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

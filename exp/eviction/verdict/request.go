// SPDX-License-Identifier: Apache-2.0

package verdict

import "time"

// MarkRemovalDelay is how long after the withdrawal of a request the mark of its pod is removed. A guard that read the
// request before its withdrawal has written the mark by then, or its write has timed out.
const MarkRemovalDelay = 30 * time.Second

// recheckInterval is the interval of reconciles of a request without a known next change. The guard does not watch all
// pods for this.
const recheckInterval = time.Minute

// RequestFacts are the input of DecideRequest.
type RequestFacts struct {
	Now time.Time
	Request
	// WithdrawnAt is when the request was withdrawn, zero if it was not.
	WithdrawnAt time.Time
	// Pod is the present pod with the name, nil if there is none. Same reports that it has the UID of the request.
	Pod  *Pod
	Same bool
	// GoneSince is when the guard first saw that the pod was gone.
	GoneSince time.Time
	// Selected reports that a policy still selects the pod, with the same mark. Deadline is the time that the operator
	// has.
	Selected bool
	Deadline time.Duration
	// NameProtection is Facts.NameProtection.
	NameProtection time.Duration
}

// A Change is the next change of a request.
type Change int

const (
	// NoChange changes nothing.
	NoChange Change = iota
	// Withdraw marks the request as withdrawn.
	Withdraw
	// RemoveMark removes the mark of the pod, and then deletes the request.
	RemoveMark
	// Drop deletes the request: its pod is gone.
	Drop
)

// DecideRequest returns the next change of a request, and when the result may differ without an event. A zero time
// means never.
func DecideRequest(k RequestFacts) (f Change, again time.Time) {
	switch {
	case k.Pod == nil || !k.Same || k.Pod.Finished:
		return k.gone()
	case k.Withdrawn && k.WithdrawnAt.After(k.Now.Add(MarkRemovalDelay)): // The clock that dated the withdrawal was ahead.
		return Withdraw, time.Time{}
	case k.Withdrawn:
		if until := k.WithdrawnAt.Add(MarkRemovalDelay); k.Now.Before(until) {
			return NoChange, until
		}
		return RemoveMark, time.Time{}
	case !k.Selected:
		return Withdraw, time.Time{}
	case k.Node == Healthy && (!k.Relocation || k.relocated()):
		return Withdraw, time.Time{}
	default:
		return NoChange, k.next()
	}
}

// next is when the request is reconciled again: at the deadline, or after recheckInterval.
func (k RequestFacts) next() time.Time {
	again := k.Now.Add(recheckInterval)
	if since := k.RequestedAt(*k.Pod, k.Now); !since.IsZero() {
		if due := since.Add(k.Deadline); due.After(k.Now) && due.Before(again) {
			return due
		}
	}
	return again
}

// relocated reports whether the deadline of a relocation and NameProtection have passed. The client gets the fallback's
// answer within NameProtection.
func (k RequestFacts) relocated() bool {
	since := k.RequestedAt(*k.Pod, k.Now)
	if since.IsZero() {
		since = k.Queued
	}
	return !k.Now.Before(since.Add(k.Deadline + k.NameProtection))
}

// gone returns the next change of a request whose pod has left its Node. The request stays while a client may still
// evict that pod by its name.
func (k RequestFacts) gone() (Change, time.Time) {
	until := k.GoneSince.Add(k.NameProtection)
	if k.Pod != nil && !k.Same {
		until = k.Pod.Created.Add(k.NameProtection)
	}
	if k.Withdrawn || !k.Now.Before(until) {
		return Drop, time.Time{}
	}
	return NoChange, until
}

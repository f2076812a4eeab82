// SPDX-License-Identifier: Apache-2.0

package hold

import "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"

// facts are all inputs of a decision about the hold.
type facts struct {
	// loaded means that a Config was read. hold is its hold.
	loaded bool
	hold   reclaim.Hold
	// inert means that the last Config has no patterns, or that there is no ConfigMap.
	inert bool
	// observed means that the Node was read. Without that, it may be part of the control plane.
	observed bool
	// requested means that the Node has a request.
	requested bool
	// matched means that a process matched, and that its request is not on the Node yet.
	matched bool
	// releasedForRequest means that the pods are released for an attempt to deliver the request, which may need one of
	// them.
	releasedForRequest bool
	// releasedForRead means that the pods are released for an attempt to read the Node.
	releasedForRead bool
	// refused is why this Node must not be held, "" if it may.
	refused string
}

// verdict is the decision about the pods.
type verdict int

const (
	// leave changes nothing, because a fact is unknown.
	leave verdict = iota
	// release ends the hold.
	release
	// freeze holds the pods.
	freeze
	// freezeAndKill holds the pods, and kills the ones that the Config names.
	freezeAndKill
)

func (f facts) decide() verdict {
	switch {
	case f.releasedForRead && !f.matched:
		return release
	case !f.loaded, f.inert && !f.observed && f.refused == "":
		return leave
	case !f.hold.Enabled(), f.refused != "", f.releasedForRequest && !f.requested:
		return release
	case !f.observed:
		return leave
	case f.requested && f.hold != reclaim.HoldFreezeOnly:
		return freezeAndKill
	case f.requested, f.matched:
		return freeze
	}
	return release
}

// stopped returns the verdict for an agent that ends. A hold outlives the agent only if the Node has a request.
func (f facts) stopped() verdict {
	f.matched = false
	return f.decide()
}

// podState is the state of the cgroup of a pod.
type podState struct {
	// marked means that the agent, or its predecessor, marked the pod before it froze it.
	marked bool
	// frozen means that a freeze is requested: cgroup.freeze is 1.
	frozen bool
}

// A change is one write to the cgroup of a pod. The order of changes makes a crash between them safe: a mark is set
// before the freeze and removed after its end, so each pod that the agent froze has a mark.
type change int

const (
	setMark change = iota
	setFrozen
	clearFrozen
	clearMark
)

// holdChanges returns the changes that hold a pod. A pod that is frozen without a mark was frozen by something else.
func (s podState) holdChanges() []change {
	switch {
	case s.frozen:
		return nil
	case s.marked:
		return []change{setFrozen}
	}
	return []change{setMark, setFrozen}
}

// releaseChanges returns the changes that release a pod.
func (s podState) releaseChanges() []change {
	switch {
	case !s.marked:
		return nil
	case !s.frozen:
		return []change{clearMark}
	}
	return []change{clearFrozen, clearMark}
}

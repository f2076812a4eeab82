// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
)

// hold freezes all pods, kills the ones that the Config names, and reports the result once it is final. It returns the
// delay until the next step.
func (h *Holder) hold(in *inputs, v verdict) time.Duration {
	if why := h.ready(); why != "" {
		h.reportUnavailable(in, why)
		return 0
	}
	h.released, h.unavailable = false, ""
	if h.active == nil {
		h.active = &activeHold{since: in.since, pods: map[string]*heldPod{}}
		clear(h.logged)
	}
	now := h.o.Now()
	if in.passed != nil || !now.Before(h.nextPass) {
		h.nextPass = now.Add(passInterval)
		if h.freezeAll(now) {
			h.nextPass = now // a pod may have started during the pass
		}
	}
	in.unblockMatched()
	if v == freezeAndKill {
		h.killAll(in)
	}
	h.measure()
	if now = h.o.Now(); h.active.pending(now) {
		return measureInterval
	}
	h.finish(in)
	return max(h.nextPass.Sub(now), measureInterval)
}

// freezeAll is one pass over all pods. It reports whether it found a pod that was not held before.
func (h *Holder) freezeAll(now time.Time) (found bool) {
	if err := h.tree.verify(); err != nil {
		h.failed(metrics.HoldListing, err)
		return false
	}
	pods, err := h.tree.pods()
	if err != nil {
		h.failed(metrics.HoldListing, err)
		return false
	}
	first, failed := len(h.active.pods) == 0, int32(0)
	held := make(map[string]*heldPod, len(pods))
	for _, pod := range pods {
		s, changed, err := h.change(pod, podState.holdChanges)
		ours := s.marked || changed // The mark is the first change.
		if err != nil && h.failed(metrics.HoldFreezing, err) && !ours {
			failed++
		}
		if !ours {
			continue
		}
		known := h.active.pods[pod]
		switch {
		case known == nil:
			known, found = &heldPod{heldSince: now}, true
			h.active.inherited = h.active.inherited || (first && s.marked)
		case changed: // It ran for an attempt to reach the API server, so its containers may have started again.
			known.killed, known.gone = time.Time{}, time.Time{}
			known.searchStarted, known.searchEnded = time.Time{}, false
		}
		held[pod] = known
	}
	h.o.Metrics.HeldPods.Store(int64(len(held)))
	h.active.failedPods = failed
	h.active.replace(held, now)
	return found
}

// change applies changes to one pod, in order. It returns the state before, and whether there was a change.
func (h *Holder) change(pod string, changes func(podState) []change) (s podState, changed bool, err error) {
	if s, err = h.tree.state(pod); err != nil {
		return podState{}, false, err
	}
	for _, c := range changes(s) {
		if err := h.tree.apply(pod, c); err != nil {
			return s, changed, err
		}
		changed = true
	}
	return s, changed, nil
}

// measure records which pods have become frozen or empty.
func (h *Holder) measure() {
	for pod, p := range h.active.pods {
		if now := h.o.Now(); !p.freezing(now) && !p.dying(now) {
			continue
		}
		frozen, populated, err := h.tree.events(pod)
		now := h.o.Now()
		switch {
		case errors.Is(err, errPodGone):
			p.recordGone(now)
			continue
		case err != nil:
			h.failed(metrics.HoldFreezing, err)
			continue
		}
		if frozen && p.frozen.IsZero() {
			p.frozen = now
		}
		if !populated && !p.killed.IsZero() {
			p.recordGone(now)
		}
	}
}

// finish logs the freeze when no pod can become frozen any more, and reports the hold once the request is on the Node.
func (h *Holder) finish(in *inputs) {
	r := h.active.report()
	if !h.active.frozen {
		h.active.frozen = true
		h.o.Metrics.HoldLatency.Store(int64(r.CPU))
		h.countLate(metrics.HoldFreezing, func(p *heldPod) bool { return !p.frozen.IsZero() })
		h.o.Log.Info("Froze pods", "pods", r.Pods, "took", r.CPU.String(), "inherited", h.active.inherited)
	}
	if !in.facts.requested {
		return
	}
	if h.active.finalText == "" && len(h.active.pods) == 0 && h.active.err != nil { // A later pass may hold pods.
		h.report(in, reclaim.HoldState{Unavailable: clip.To(h.active.err.Error(), maxReason)}.Text())
		return
	}
	if h.active.finalText == "" {
		h.active.finalText = r.Text()
		h.countLate(metrics.HoldKilling, func(p *heldPod) bool { return p.killed.IsZero() })
		if last, ok := reclaim.ParseHoldState(in.annotation); ok && last.Unavailable == "" && h.active.inherited {
			h.active.finalText = in.annotation // measured by the predecessor
		}
		if r.Killed > 0 {
			h.o.Log.Info("Killed pods", "pods", r.Killed, "took", r.Memory.String())
		}
	}
	h.report(in, h.active.finalText)
}

// countLate counts the pods that were not frozen, or not empty, in time.
func (h *Holder) countLate(kind metrics.HoldFailure, done func(*heldPod) bool) {
	for pod, p := range h.active.pods {
		if p.gone.IsZero() && !done(p) {
			h.failed(kind, fmt.Errorf("%w: %s", errLate, pod))
		}
	}
}

// release ends the hold. It returns the delay until the next attempt, zero if no pod has a mark.
func (h *Holder) release(in *inputs) time.Duration {
	h.nextPass = time.Time{}
	attempt := in.facts.releasedForRequest || in.facts.releasedForRead
	if !attempt { // Otherwise the hold continues after the attempt, with the times of its first freeze.
		h.active, h.paused = nil, nil
	}
	why := in.facts.refused
	if !h.released {
		if unready := h.ready(); unready != "" {
			why = unready
		} else {
			h.released = h.releaseAll(attempt && !in.facts.observed)
		}
	}
	switch {
	case in.facts.releasedForRead: // The report stays.
	case in.facts.hold.Enabled() && why != "":
		h.reportUnavailable(in, why)
	default:
		h.unavailable = ""
		h.report(in, "")
	}
	switch {
	case h.released || h.open == nil:
		return 0
	case h.tree == nil:
		return openInterval
	default:
		return passInterval
	}
}

// resume holds the paused pods again: an earlier agent process held them, and the Node is still unknown.
func (h *Holder) resume() {
	for _, pod := range h.paused {
		_, changed, err := h.change(pod, podState.holdChanges)
		if err != nil {
			h.failed(metrics.HoldFreezing, err)
		}
		h.released = h.released && !changed
	}
	h.paused = nil
}

// releaseAll is one pass that releases all pods with a mark. It reports whether none is left. With pause, resume can
// hold these pods again.
func (h *Holder) releaseAll(pause bool) bool {
	pods, err := h.tree.pods()
	if err != nil {
		h.failed(metrics.HoldReleasing, err)
		return false
	}
	count, left := 0, 0
	for _, pod := range pods {
		switch _, changed, err := h.change(pod, podState.releaseChanges); {
		case errors.Is(err, errPodGone):
		case err != nil:
			h.failed(metrics.HoldReleasing, err)
			left++
		case changed:
			count++
			if pause {
				h.paused = append(h.paused, pod)
			}
		}
	}
	h.o.Metrics.HeldPods.Store(int64(left))
	if count > 0 {
		h.o.Log.Info("Released pods", "pods", count)
	}
	return left == 0
}

var errLate = errors.New("the processes of a pod did not stop in time")

// failed counts a failure, and logs the first of its kind in a hold. It returns false for a pod that ended meanwhile,
// which is no failure.
func (h *Holder) failed(kind metrics.HoldFailure, err error) bool {
	if errors.Is(err, errPodGone) {
		return false
	}
	h.o.Metrics.HoldFailures.Of(kind).Add(1)
	if h.active != nil {
		h.active.err = err
	}
	if !h.logged[kind] {
		h.logged[kind] = true
		h.o.Log.Warn("A step of the hold failed", "step", string(kind), "err", err)
	}
	return true
}

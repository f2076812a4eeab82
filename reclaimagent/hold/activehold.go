// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

const (
	// freezeTimeout bounds the wait until a pod is frozen. A process that waits for a disk freezes only afterwards.
	freezeTimeout = time.Second
	// killTimeout bounds the wait until a killed pod has no process.
	killTimeout = 2 * time.Second
	// searchTimeout bounds the wait for a search for devices.
	searchTimeout = time.Second
)

// activeHold is one hold, from its first pass to its release.
type activeHold struct {
	// since is the time of the match. inherited means that an earlier agent process started the hold.
	since     time.Time
	inherited bool
	pods      map[string]*heldPod
	// failedPods is the number of pods that the last pass could not freeze. They are not in pods.
	failedPods int32
	// frozen means that the first freeze was logged.
	frozen bool
	// finalText is the report, "" until it is final. Pods that appear later do not change it.
	finalText string
	// err is the last failure.
	err error
}

// replace sets the pods that a pass found. Until the report is final, it keeps the ones that were removed.
func (s *activeHold) replace(held map[string]*heldPod, now time.Time) {
	if s.finalText == "" {
		for pod, p := range s.pods {
			if held[pod] == nil {
				held[pod] = p
				p.recordGone(now)
			}
		}
	}
	s.pods = held
}

// heldPod is a pod that the agent froze. A zero time means "not yet".
type heldPod struct {
	// heldSince is the time of the first pass that held the pod. frozen is the time when all of its processes were
	// frozen.
	heldSince, frozen time.Time
	// searchStarted is the time when a search for devices started. owns is its result, known after it has ended.
	searchStarted time.Time
	searchEnded   bool
	owns          ownership
	// killed and gone are the times of the kill, and of the end of its last process.
	killed, gone time.Time
}

// recordGone records that the pod has no process any more.
func (p *heldPod) recordGone(now time.Time) {
	if p.gone.IsZero() {
		p.gone = now
	}
}

// freezing reports whether the pod may still become frozen.
func (p *heldPod) freezing(now time.Time) bool {
	return p.frozen.IsZero() && p.gone.IsZero() && now.Sub(p.heldSince) < freezeTimeout
}

func (p *heldPod) searching(now time.Time) bool {
	return !p.searchStarted.IsZero() && !p.searchEnded && now.Sub(p.searchStarted) < searchTimeout
}

func (p *heldPod) dying(now time.Time) bool {
	return !p.killed.IsZero() && p.gone.IsZero() && now.Sub(p.killed) < killTimeout
}

// pending reports whether a pod may still change the report.
func (s *activeHold) pending(now time.Time) bool {
	for _, p := range s.pods {
		if p.freezing(now) || p.searching(now) || p.dying(now) {
			return true
		}
	}
	return false
}

// report summarizes the hold. It rounds times up to milliseconds, because zero would mean that nothing happened.
func (s *activeHold) report() reclaim.HoldState {
	var r reclaim.HoldState
	r.Running = s.failedPods
	for _, p := range s.pods {
		switch {
		case !p.frozen.IsZero():
			r.Pods++
			r.CPU = max(r.CPU, p.frozen.Sub(s.since))
		case p.gone.IsZero():
			r.Running++
		}
		if !p.killed.IsZero() && !p.gone.IsZero() {
			r.Killed++
			r.Memory = max(r.Memory, p.gone.Sub(s.since))
		}
	}
	r.CPU, r.Memory = roundUp(r.CPU), roundUp(r.Memory)
	return r
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

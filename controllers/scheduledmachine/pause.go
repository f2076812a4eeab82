// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// pausedMessage is the message while actuation is paused.
const pausedMessage = "Actuation is paused in the manager: nothing is carried out"

// pausedWithRequestMessage is the message while actuation is paused and an owner waits.
const pausedWithRequestMessage = pausedMessage + "; its owner has asked for it, and the request is kept"

// reportPaused returns the message for a suppressed action: what would happen without the pause.
func (s *scope) reportPaused(reason lifecycle.Reason) string {
	if s.stalled != "" {
		return pausedWithRequestMessage
	}
	if s.heldElsewhere() {
		reason = lifecycle.GracefulShutdown
	}
	return withDetail(pausedMessage+"; otherwise", pendingMessages[reason])
}

// heldByPause reports whether the machine would leave now without the pause. Without a Machine, package reclaim only
// turns the schedule off.
func (s *scope) heldByPause(d lifecycle.Decision, actErr error) bool {
	departs := d.Action == lifecycle.Depart || d.Action == lifecycle.Remove
	return s.children.Machine != nil && s.heldElsewhere() || departs && actuate.IsSuppressed(actErr)
}

// heldElsewhere reports whether the pause suppresses an action of another controller: an owner's reclaim has stalled,
// or 5-Spot's hook holds a Machine that is being deleted.
func (s *scope) heldElsewhere() bool {
	m := s.children.Machine
	return s.suppressed && (s.stalled != "" || m != nil && !s.paused && children.AtHook(m))
}

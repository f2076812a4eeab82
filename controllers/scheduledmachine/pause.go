// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// pausedMessage is what people are told of everything that is suppressed.
const pausedMessage = "Actuation is paused in the manager: nothing is carried out"

// askedMessage is what they are told where an owner waits.
const askedMessage = pausedMessage + "; its owner has asked for it, and the request is kept"

// reportPaused says what would be done.
func (s *scope) reportPaused(reason lifecycle.Reason) string {
	if s.stalled != "" {
		return askedMessage
	}
	if s.heldElsewhere() {
		reason = lifecycle.GracefulShutdown
	}
	return withDetail(pausedMessage+"; otherwise", underway[reason])
}

// thaw is the decision of a machine whose phases stay as they are, although some are only
// passed on the way: it is what would be decided at the end of the way.
func (s *scope) thaw(now time.Time, d lifecycle.Decision) lifecycle.Decision {
	if !s.frozen || !d.Again {
		return d
	}
	f := s.facts(now)
	f.Phase = d.Phase
	return lifecycle.Decide(f)
}

// heldByPause reports whether the machine would leave now, were actuation not paused.
func (s *scope) heldByPause(d lifecycle.Decision, actErr error) bool {
	departs := d.Action == lifecycle.Depart || d.Action == lifecycle.Remove
	return s.heldElsewhere() || departs && actuate.IsSuppressed(actErr)
}

// heldElsewhere reports whether another controller carries nothing out for the machine: an owner
// waits, or our hook holds a Machine that is being deleted.
func (s *scope) heldElsewhere() bool {
	m := s.children.Machine
	return s.frozen && (s.stalled != "" || m != nil && !s.paused && children.AtHook(m))
}

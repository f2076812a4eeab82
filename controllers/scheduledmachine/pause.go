// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// pausedMessage is what people are told of everything that is suppressed.
const pausedMessage = "Actuation is paused in the manager: nothing is carried out"

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
	return s.stalled != "" || departs && actuate.IsSuppressed(actErr)
}

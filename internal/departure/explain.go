// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"fmt"
)

// Explain says in a sentence what w, which is in the plan, waits for. It is for a condition:
// it counts nobody, so that it does not change while others leave.
func (p Plan) Explain(w Waiting) string {
	switch w.Reason {
	case DeparturesHeld:
		return p.Gates.Hold
	case ClockSuspect:
		return "The manager's clock may be wrong: it differs from the API server's by more than 1m, or was set within 5m"
	case WarmingUp:
		if p.Gates.WarmUp >= Cold {
			return "The manager has begun to lead: it first looks at what has left before"
		}
		return "The manager has begun to lead: it first looks at how many machines there were, and makes sure that no other one leads"
	case WipeQuarantine:
		return "Nearly all machines of the Cluster are to leave at once: that has to be confirmed first, which takes 20 s. If it is a mistake, hold all departures of the Cluster now (kubectl 5spot hold-departures)"
	default:
	}
	return fmt.Sprintf("At most %s of the Cluster's machines, but always one, start to leave within %s: it waits for others", p.Limits.Cap.percent(), Window)
}

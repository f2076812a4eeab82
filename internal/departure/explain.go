// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"fmt"
)

// Explain returns a sentence that explains why w, which must be in the plan, waits. The sentence has no numbers
// that change while other machines leave, because it is the message of a condition.
func (p Plan) Explain(w Waiting) string {
	switch w.Reason {
	case DeparturesHeld:
		return p.Gates.Hold
	case ClockSuspect:
		return "The manager's clock may be wrong: it differs from the API server's by more than 1m, or was set within 5m"
	case WarmingUp:
		if p.Gates.WarmUp >= Cold {
			return "The manager became leader a moment ago: no machine starts to leave before the departures under the previous leader no longer count (10s)"
		}
		return "The manager became leader a moment ago: no unscheduled departure starts before the lease of the previous leader has expired"
	case WipeQuarantine:
		return "Nearly all machines of the Cluster would leave at once: three checks confirm that first, 20s. If it is a mistake, hold all departures of the Cluster now (kubectl 5spot hold-departures)"
	default:
	}
	return fmt.Sprintf("At most %s of the Cluster's machines, but always one, start to leave within %s: it waits for others", p.Limits.Cap.percent(), Window)
}

// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"cmp"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
)

// Until returns the deadline of a step: the start of the phase + has, within two bounds. It is never before the first
// call + min(has, call), so that a manager that started late makes one call. It is never after the first call + has, so
// that clock skew adds no time. If no call was made, the first call counts as made now.
func (p Progress) Until(has, call time.Duration, began, now time.Time) time.Time {
	first := p.FirstCall(now)
	return instant.Earliest(first.Add(has), instant.Latest(first.Add(min(has, call)), began.Add(has)))
}

// FirstCall returns when the step was first called, now if it was not.
func (p Progress) FirstCall(now time.Time) time.Time { return cmp.Or(p.FirstCalled, now) }

// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// ReportDelay tracks since when the observed state of an object differs from its reported state. If the state is
// lost, a report is delayed a little longer. The zero value is ready for use. It is safe for concurrent use.
type ReportDelay struct {
	since sync.Map // ctrl.Request to time.Time
}

// Until returns the end of a delay of the given length, counted from the first call.
func (d *ReportDelay) Until(req ctrl.Request, delay time.Duration, now time.Time) time.Time {
	v, _ := d.since.LoadOrStore(req, now)
	begun, _ := v.(time.Time)
	if begun.After(now) { // The clock may have been set back.
		begun = now
		d.since.Store(req, begun)
	}
	return begun.Add(delay)
}

// Over ends the delay: the state is reported, or does not differ any more.
func (d *ReportDelay) Over(req ctrl.Request) { d.since.Delete(req) }

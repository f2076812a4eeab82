// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// Differing knows since when what is seen of an object differs from what was reported
// of it. It can be lost: then a report waits a little longer. The zero value is ready for
// use, and it is safe for concurrent use.
type Differing struct {
	mu    sync.Mutex
	since map[ctrl.Request]time.Time
}

// Until returns when a patience ends that began with the first call.
func (d *Differing) Until(req ctrl.Request, patience time.Duration, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since == nil {
		d.since = map[ctrl.Request]time.Time{}
	}
	begun, ok := d.since[req]
	if !ok || begun.After(now) { // A clock may be set back.
		begun = now
		d.since[req] = begun
	}
	return begun.Add(patience)
}

// Over notes that what is seen is reported, or that there is nothing to report.
func (d *Differing) Over(req ctrl.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, req)
}

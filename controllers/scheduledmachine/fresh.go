// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// longestQuiet bounds how long an object waits for a cache that is late. It is
// short, because nothing else may wake the object.
const longestQuiet = 2 * time.Second

// freshness knows of which objects the cache still shows the version that our own
// last write replaced. Another write from that version would only be refused: when
// a thousand machines come at once and the caches lag for seconds, refused writes
// outnumbered those that counted. The zero value knows of none.
type freshness struct {
	late sync.Map // ctrl.Request to replaced
}

// replaced is a version that is no more, and how often it was met since.
type replaced struct {
	version string
	met     int
}

// wait returns how long to wait for a newer version than the one that was read,
// zero if it may be worked with.
func (f *freshness) wait(req ctrl.Request, version string) time.Duration {
	v, ok := f.late.Load(req)
	if !ok {
		return 0
	}
	r, _ := v.(replaced)
	if r.version != version {
		f.late.Delete(req)
		return 0
	}
	wait := min(quietRetry<<min(r.met, 10), longestQuiet)
	r.met++
	f.late.Store(req, r)
	return wait
}

// wrote notes that what was read is no longer the newest.
func (f *freshness) wrote(req ctrl.Request, read, now string) {
	if read != now {
		f.late.Store(req, replaced{version: read})
	}
}

// forget forgets an object that is gone.
func (f *freshness) forget(req ctrl.Request) { f.late.Delete(req) }

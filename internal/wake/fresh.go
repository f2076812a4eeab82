// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// QuietRetry is for a write that met a newer object: the cache catches up within
// milliseconds, and nobody needs to hear of it.
const QuietRetry = 50 * time.Millisecond

// longestQuiet bounds how long an object waits for a cache that is late. It is
// short, because nothing else may wake the object.
const longestQuiet = 2 * time.Second

// Freshness knows of which objects the cache still shows a version that has been
// replaced. Another write from that version would only be refused: when
// a thousand machines come at once and the caches lag for seconds, refused writes
// outnumbered those that counted. The zero value knows of none.
type Freshness struct {
	late sync.Map // ctrl.Request to replaced
}

// replaced is a version that is no more, and how often it was met since.
type replaced struct {
	version string
	met     int
}

// Wait returns how long to wait for a newer version than the one that was read,
// zero if it may be worked with.
func (f *Freshness) Wait(req ctrl.Request, version string) time.Duration {
	v, ok := f.late.Load(req)
	if !ok {
		return 0
	}
	r, _ := v.(replaced)
	if r.version != version {
		f.late.Delete(req)
		return 0
	}
	wait := min(QuietRetry<<min(r.met, 10), longestQuiet)
	r.met++
	f.late.Store(req, r)
	return wait
}

// Wrote notes what a run made of the version that it read.
func (f *Freshness) Wrote(req ctrl.Request, read, now string) {
	if read != now {
		f.Late(req, read)
	}
}

// Late notes that a version has been replaced, by whomever.
func (f *Freshness) Late(req ctrl.Request, version string) {
	f.late.Store(req, replaced{version: version})
}

// Forget forgets an object that is gone.
func (f *Freshness) Forget(req ctrl.Request) { f.late.Delete(req) }

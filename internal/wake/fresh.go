// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"cmp"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// QuietRetry is for a write that met a newer object: the cache catches up within
// milliseconds, and nobody needs to hear of it.
const QuietRetry = 50 * time.Millisecond

// longestQuiet bounds how long an object waits for a cache that is late. It is
// short, because nothing else may wake the object.
const longestQuiet = 2 * time.Second

// longestLate is when a cache that shows a version still is not taken to be late any more: the
// version has not been replaced after all, or is there again.
const longestLate = time.Minute

// quietRefusals is how many refusals in a row nobody hears of: some three seconds, in
// which every cache catches up. What is refused for longer is refused by somebody.
const quietRefusals = 6

// Freshness is the one way to meet a cache that is late, in every controller:
//
//	if wait := r.fresh.Hold(req, read.ResourceVersion, now); wait > 0 {
//		return ctrl.Result{RequeueAfter: wait}, nil
//	}
//	wrote, err := ... // observe, decide, act, report
//	r.fresh.Wrote(req, read.ResourceVersion, written.ResourceVersion)
//	return r.fresh.Meet(req, now, err)
//
// It knows of which objects the cache still shows a version that has been replaced: the
// one that a run read, or any that the run wrote before its last.
// Another write from that version would only be refused: when a thousand machines come
// at once and the caches lag for seconds, refused writes outnumbered those that
// counted. And it knows whose writes were refused with a conflict. Such a write is tried
// once per back-off, whatever wakes the object in between, because a conflict that stays
// is no late cache: a webhook may answer so to everything. The zero value is ready for
// use, and it is safe for concurrent use.
type Freshness struct {
	// Longest bounds the back-off of writes that are refused; zero is the contract's
	// five minutes.
	Longest time.Duration

	late        sync.Map // ctrl.Request to replaced
	refused     sync.Map // ctrl.Request to refusals
	generations sync.Map // ctrl.Request to int64
}

// replaced records the version that a reconcile read (version) and the last one that it wrote
// (last, empty if unknown), how often the cache has shown an older one since (met), and since when.
type replaced struct {
	version, last string
	met           int
	since         time.Time
}

// covers reports whether a version that the cache shows has been replaced. A run may write
// several times, and a late cache shows each of its versions in turn.
func (r replaced) covers(shown string) bool {
	if shown == r.version {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(shown, cmp.Or(r.last, r.version))
	return err == nil && order < 0
}

// refusals are the conflicts in a row, and when the next try is due.
type refusals struct {
	count int
	until time.Time
}

// Hold returns how long nothing is to be tried for an object whose cached version was
// read, zero if it may be worked with.
func (f *Freshness) Hold(req ctrl.Request, version string, now time.Time) time.Duration {
	wait := f.Wait(req, version, now)
	if v, ok := f.refused.Load(req); ok {
		r, _ := v.(refusals)
		wait = max(wait, min(r.until.Sub(now), f.longest())) // A clock may be set back.
	}
	return wait
}

// Wait is Hold for a version that has been replaced. It has an end.
func (f *Freshness) Wait(req ctrl.Request, version string, now time.Time) time.Duration {
	v, ok := f.late.Load(req)
	if !ok {
		return 0
	}
	r, _ := v.(replaced)
	if r.met == 0 || r.since.After(now) { // A clock may be set back.
		r.since = now
	}
	if !r.covers(version) || now.Sub(r.since) >= longestLate {
		f.late.Delete(req)
		return 0
	}
	wait := min(QuietRetry<<min(r.met, 10), longestQuiet)
	r.met++
	f.late.Store(req, r)
	return wait
}

// Generation notes the generation that was read. Whoever asks for something new does not
// wait for the end of a back-off.
func (f *Freshness) Generation(req ctrl.Request, generation int64) {
	if was, ok := f.generations.Swap(req, generation); ok && was != generation {
		f.refused.Delete(req)
	}
}

// Meet returns what a reconcile ends with that ended with err. A conflict is tried again
// after a back-off, quietly; one that lasts is an error as any other. What is suppressed is
// none: it is not tried again.
func (f *Freshness) Meet(req ctrl.Request, now time.Time, err error) (ctrl.Result, error) {
	err = actuate.IgnoreSuppressed(err)
	if err == nil {
		f.refused.Delete(req)
	}
	if !apierrors.IsConflict(err) {
		return ctrl.Result{}, err
	}
	v, _ := f.refused.Load(req)
	r, _ := v.(refusals)
	wait := min(QuietRetry<<min(r.count, 20), f.longest())
	r = refusals{count: r.count + 1, until: now.Add(wait)}
	f.refused.Store(req, r)
	if r.count > quietRefusals {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

func (f *Freshness) longest() time.Duration {
	if f.Longest > 0 {
		return f.Longest
	}
	return longestRetry
}

// Wrote notes what a run made of the version that it read.
func (f *Freshness) Wrote(req ctrl.Request, read, now string) {
	if read != now {
		f.late.Store(req, replaced{version: read, last: now})
	}
}

// Late notes that a version has been replaced, and with it every version before it.
func (f *Freshness) Late(req ctrl.Request, version string) {
	f.late.Store(req, replaced{version: version})
}

// Forget forgets an object that is gone.
func (f *Freshness) Forget(req ctrl.Request) {
	f.late.Delete(req)
	f.refused.Delete(req)
	f.generations.Delete(req)
}

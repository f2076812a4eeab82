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

// QuietRetry is the delay after a conflict. The cache catches up within milliseconds, so the conflict is not
// reported.
const QuietRetry = 50 * time.Millisecond

// maxStaleRecheck is the maximum time between two checks of a stale cache. It is short, because no other event may
// enqueue the object.
const maxStaleRecheck = 2 * time.Second

// maxStaleTime is how long a cache that shows a replaced version counts as stale. After that, the version was not
// replaced after all, or was restored.
const maxStaleTime = time.Minute

// maxSilentConflicts is how many conflicts in a row are not reported. They take about three seconds, in which every
// cache catches up. A longer series has another cause.
const maxSilentConflicts = 6

// Freshness handles stale caches for every controller:
//
//	if wait := r.fresh.Hold(req, read.ResourceVersion, now); wait > 0 {
//		return ctrl.Result{RequeueAfter: wait}, nil
//	}
//	wrote, err := ... // observe, decide, act, report
//	r.fresh.Wrote(req, read.ResourceVersion, written.ResourceVersion)
//	return r.fresh.ResultOf(req, now, err)
//
// It tracks the objects of which the cache still shows a replaced version: the version that a reconcile read,
// or any that it wrote before its last. A write from such a version would only cause a conflict. With a
// thousand simultaneous joins and caches that lag for seconds, conflicts outnumbered successful writes.
//
// It also tracks conflicts. A write that caused a conflict is retried once per back-off, whatever enqueues the
// object in between. A persistent conflict is not a stale cache: a webhook may reject every write with it. The
// zero value is ready for use. It is safe for concurrent use.
type Freshness struct {
	// MaxBackoff is the maximum back-off after conflicts. Zero means five minutes.
	MaxBackoff time.Duration

	stale      sync.Map // ctrl.Request to replaced
	conflicted sync.Map // ctrl.Request to conflicts
	inputs     sync.Map // ctrl.Request to input
}

// replaced describes a version that was replaced. A reconcile read version and last wrote last, which is empty
// if unknown. checks is how often the cache has shown an older version since then, since is when that started.
type replaced struct {
	version, last string
	checks        int
	since         time.Time
}

// covers reports whether a version from the cache has been replaced. A reconcile may write several times, and a
// stale cache shows each version in turn.
func (r replaced) covers(shown string) bool {
	if shown == r.version {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(shown, cmp.Or(r.last, r.version))
	return err == nil && order < 0
}

// conflicts counts conflicts in a row. until is when the next try is due.
type conflicts struct {
	count int
	until time.Time
}

// input is what a decision depends on besides objects. edge is in Unix seconds.
type input struct{ generation, edge int64 }

// Hold returns how long to wait before an object with this cached version is reconciled, zero if it is current.
func (f *Freshness) Hold(req ctrl.Request, version string, now time.Time) time.Duration {
	wait := f.Wait(req, version, now)
	if v, ok := f.conflicted.Load(req); ok {
		r, _ := v.(conflicts)
		wait = max(wait, min(r.until.Sub(now), f.maxBackoff())) // The clock may have been set back.
	}
	return wait
}

// Wait is Hold for a replaced version only. The wait ends after maxStaleTime.
func (f *Freshness) Wait(req ctrl.Request, version string, now time.Time) time.Duration {
	v, ok := f.stale.Load(req)
	if !ok {
		return 0
	}
	r, _ := v.(replaced)
	if r.checks == 0 || r.since.After(now) { // The clock may have been set back.
		r.since = now
	}
	if !r.covers(version) || now.Sub(r.since) >= maxStaleTime {
		f.stale.Delete(req)
		return 0
	}
	wait := min(QuietRetry<<min(r.checks, 10), maxStaleRecheck)
	r.checks++
	f.stale.Store(req, r)
	return wait
}

// Input records the generation that was read, and the next instant at which the decision changes by time alone. A new
// generation ends the back-off. An instant that has passed ends both waits, once.
func (f *Freshness) Input(req ctrl.Request, generation int64, edge time.Time) {
	v, ok := f.inputs.Swap(req, input{generation, edge.Unix()})
	was, _ := v.(input)
	if ok && was.generation != generation {
		f.conflicted.Delete(req)
	}
	if ok && was.edge != edge.Unix() {
		f.conflicted.Delete(req)
		f.stale.Delete(req)
	}
}

// ResultOf returns the result of a reconcile that ended with err. A conflict is retried after a back-off, without
// an error. After maxSilentConflicts in a row it is returned as an error. Suppressed writes are ignored and not
// retried.
func (f *Freshness) ResultOf(req ctrl.Request, now time.Time, err error) (ctrl.Result, error) {
	err = actuate.IgnoreSuppressed(err)
	if err == nil {
		f.conflicted.Delete(req)
	}
	if !apierrors.IsConflict(err) {
		return ctrl.Result{}, err
	}
	v, _ := f.conflicted.Load(req)
	r, _ := v.(conflicts)
	wait := min(QuietRetry<<min(r.count, 20), f.maxBackoff())
	r = conflicts{count: r.count + 1, until: now.Add(wait)}
	f.conflicted.Store(req, r)
	if r.count > maxSilentConflicts {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// Shorten ends the back-off after conflicts at an instant, if it lasts longer.
func (f *Freshness) Shorten(req ctrl.Request, until time.Time) {
	v, _ := f.conflicted.Load(req)
	if r, ok := v.(conflicts); ok && r.until.After(until) {
		r.until = until
		f.conflicted.Store(req, r)
	}
}

func (f *Freshness) maxBackoff() time.Duration { return cmp.Or(f.MaxBackoff, maxRetry) }

// Wrote records the version that a reconcile read and the version that it wrote.
func (f *Freshness) Wrote(req ctrl.Request, read, now string) {
	if read != now {
		f.stale.Store(req, replaced{version: read, last: now})
	}
}

// MarkStale records that a version has been replaced, and with it every earlier version.
func (f *Freshness) MarkStale(req ctrl.Request, version string) {
	f.stale.Store(req, replaced{version: version})
}

// Forget drops the state of a deleted object.
func (f *Freshness) Forget(req ctrl.Request) {
	f.stale.Delete(req)
	f.conflicted.Delete(req)
	f.inputs.Delete(req)
}

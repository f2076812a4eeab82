// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

var noon = time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

// seen is the state after a check.
type seen struct {
	Verdict        rails.WipeVerdict
	Held, Baseline int
	Next           time.Duration // from noon; 0 means never
}

const (
	believed    = rails.Accepted
	quarantined = rails.Quarantined
	confirmed   = rails.Confirmed
)

func TestWipe(t *testing.T) {
	const s = time.Second
	type look struct {
		at         time.Duration
		kept, left int
		want       seen
	}
	cases := map[string]struct {
		reason   string
		baseline int
		looks    []look
	}{
		"Wipe": {
			"Case 30: none of twenty would stay. They are held until three checks agree.", 20, []look{
				{1 * s, 0, 0, seen{quarantined, 1, 20, 11 * s}},
				{11 * s, 0, 0, seen{quarantined, 2, 20, 21 * s}},
				{21 * s, 0, 0, seen{confirmed, 0, 0, 0}},
				{31 * s, 0, 0, seen{believed, 0, 0, 0}},
			},
		},
		"LooksTooClose": {
			"It takes twenty seconds, however many checks there are.", 20, []look{
				{0, 0, 0, seen{quarantined, 1, 20, 10 * s}},
				{1 * s, 0, 0, seen{quarantined, 1, 20, 10 * s}},
				{10*s - 1, 0, 0, seen{quarantined, 1, 20, 10 * s}},
				{12 * s, 0, 0, seen{quarantined, 2, 20, 22 * s}},
				{20 * s, 0, 0, seen{quarantined, 2, 20, 22 * s}},
				{22 * s, 0, 0, seen{confirmed, 0, 0, 0}},
			},
		},
		"NeedNotBeEqual": {
			"Edits still come in; each look sees a wipe.", 40, []look{
				{0, 3, 0, seen{quarantined, 1, 40, 10 * s}},
				{10 * s, 1, 0, seen{quarantined, 2, 40, 20 * s}},
				{20 * s, 2, 0, seen{confirmed, 0, 2, 0}},
			},
		},
		"Recovery": {
			"Case 31: one look that sees none is believed at once, and the next wipe needs three again.", 20, []look{
				{1 * s, 0, 0, seen{quarantined, 1, 20, 11 * s}},
				{11 * s, 0, 0, seen{quarantined, 2, 20, 21 * s}},
				{12 * s, 18, 0, seen{believed, 0, 20, 22 * s}},
				{13 * s, 0, 0, seen{quarantined, 1, 20, 23 * s}},
				{23 * s, 0, 0, seen{quarantined, 2, 20, 33 * s}},
				{33 * s, 0, 0, seen{confirmed, 0, 0, 0}},
			},
		},
		"SmallCluster": {
			"Case 32: of nine all may go at once.", 9, []look{{1 * s, 0, 0, seen{believed, 0, 9, 11 * s}}, {11 * s, 0, 0, seen{believed, 0, 0, 0}}},
		},
		"StepByStep": {
			"Case 33: who takes a Cluster down in steps that settle is believed.", 40, []look{
				{1 * s, 20, 0, seen{believed, 0, 40, 11 * s}},
				{11 * s, 20, 0, seen{believed, 0, 20, 0}},
				{21 * s, 8, 0, seen{believed, 0, 20, 31 * s}},
				{31 * s, 8, 0, seen{believed, 0, 8, 0}},
				{41 * s, 0, 0, seen{believed, 0, 8, 51 * s}},
			},
		},
		"OneInTenIsLeft":   {"Case 34: exactly a tenth is no wipe.", 20, []look{{1 * s, 2, 0, seen{believed, 0, 20, 11 * s}}}},
		"LessThanOneInTen": {"Case 34.", 20, []look{{1 * s, 1, 0, seen{quarantined, 1, 20, 11 * s}}}},
		"OneOfTen":         {"Case 34.", 10, []look{{1 * s, 1, 0, seen{believed, 0, 10, 11 * s}}}},
		"NoneOfTen":        {"Case 34.", 10, []look{{1 * s, 0, 0, seen{quarantined, 1, 10, 11 * s}}}},
		"MoreAtOnce": {
			"Machines that come are believed by the first look.", 20, []look{{1 * s, 300, 0, seen{believed, 0, 300, 0}}, {2 * s, 29, 0, seen{quarantined, 1, 300, 12 * s}}},
		},
		"TwoLooksAMomentApart": {
			"Two equal counts between two edits do not settle.", 40, []look{
				{1 * s, 20, 0, seen{believed, 0, 40, 11 * s}},
				{2 * s, 20, 0, seen{believed, 0, 40, 11 * s}},
				{3 * s, 3, 0, seen{quarantined, 1, 40, 13 * s}},
			},
		},
		"AnotherCountBetween": {
			"What comes and goes does not settle.", 40, []look{
				{0, 20, 0, seen{believed, 0, 40, 10 * s}},
				{5 * s, 21, 0, seen{believed, 0, 40, 15 * s}},
				{10 * s, 20, 0, seen{believed, 0, 40, 20 * s}},
				{20 * s, 20, 0, seen{believed, 0, 20, 0}},
			},
		},
		"FirstLook": {"Without a baseline the first count is believed.", 0, []look{{1 * s, 3, 0, seen{believed, 0, 3, 0}}}},
		"WipedBeforeTheRestart": {
			"Case 49: with a baseline it is not.", 40, []look{{1 * s, 0, 0, seen{quarantined, 1, 40, 11 * s}}},
		},
		"RestartWhileHeld": {
			"Case 48: another manager has the same baseline and counts anew.", 20, []look{
				{1 * s, 0, 0, seen{quarantined, 1, 20, 11 * s}},
				{11 * s, 0, 0, seen{quarantined, 2, 20, 21 * s}},
			},
		},
		"ANormalEvening": {
			"Case 22: machines that left as announced are no loss, though all of them did.", 500, []look{
				{0, 475, 25, seen{believed, 0, 475, 0}},
				{10 * s, 451, 24, seen{believed, 0, 451, 0}},
				{600 * s, 0, 451, seen{believed, 0, 0, 0}},
			},
		},
		"OwnersCameBack": {
			"Nor are those whose owners came back, and the rest is watched as before.", 100, []look{
				{0, 11, 89, seen{believed, 0, 11, 0}},
				{1 * s, 1, 0, seen{quarantined, 1, 11, 11 * s}},
			},
		},
		"LeftWhileHeld": {
			"Windows end while it is held: that is no confirmation.", 100, []look{
				{0, 5, 0, seen{quarantined, 1, 100, 10 * s}},
				{10 * s, 1, 4, seen{quarantined, 2, 96, 20 * s}},
				{20 * s, 1, 0, seen{confirmed, 0, 1, 0}},
			},
		},
		"LeftWhileItSettles": {
			"One left as announced between two counts that are the same without it.", 40, []look{
				{0, 20, 0, seen{believed, 0, 40, 10 * s}},
				{10 * s, 19, 1, seen{believed, 0, 19, 0}},
			},
		},
		"ClockWasSetBack": {
			"It is held as long as with a right clock, not until that time comes again.", 20, []look{
				{0, 0, 0, seen{quarantined, 1, 20, 10 * s}},
				{-3600 * s, 0, 0, seen{quarantined, 1, 20, -3590 * s}},
				{-3590 * s, 0, 0, seen{quarantined, 2, 20, -3580 * s}},
				{-3580 * s, 0, 0, seen{confirmed, 0, 0, 0}},
				{-3500 * s, 30, 0, seen{believed, 0, 30, 0}},
				{-3400 * s, 20, 0, seen{believed, 0, 30, -3390 * s}},
				{-7200 * s, 20, 0, seen{believed, 0, 30, -7190 * s}},
				{-7190 * s, 20, 0, seen{believed, 0, 20, 0}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := rails.Wipe{Baseline: tc.baseline}
			for i, l := range tc.looks {
				var got seen
				w, got.Verdict = w.Judge(rails.Count{At: after(l.at), Kept: l.kept, Left: l.left})
				got.Held, got.Baseline = w.Held, w.Baseline
				if next := w.Next(); !next.IsZero() {
					got.Next = next.Sub(noon)
				}
				if diff := cmp.Diff(l.want, got); diff != "" {
					t.Fatalf("%s\nlook %d: -want, +got:\n%s", tc.reason, i, diff)
				}
			}
		})
	}
}

// oracle is P11: it computes the quarantine from all earlier checks. Counts include machines that have left, so
// that a departure changes nothing.
type oracle struct {
	left int
	base int
	runs []oracleRun // of checks since base was accepted
}

type oracleRun struct {
	kept int
	wipe bool
	at   time.Time // its first check
	n    int       // checks that count
	last time.Time
}

func (o *oracle) judge(c rails.Count) rails.WipeVerdict {
	o.left += c.Left
	kept, base := c.Kept+o.left, o.base-o.left
	wipe := base >= 10 && float64(c.Kept) < float64(base)/10
	if kept >= o.base {
		o.base, o.runs = kept, nil
		return rails.Accepted
	}
	last := len(o.runs) - 1
	if last < 0 || o.runs[last].wipe != wipe || !wipe && o.runs[last].kept != kept {
		o.runs = append(o.runs, oracleRun{kept: kept, wipe: wipe, at: c.At, n: 1, last: c.At})
		last++
	}
	r := &o.runs[last]
	if c.At.Sub(r.last) >= 10*time.Second {
		r.n, r.last = r.n+1, c.At
	}
	switch {
	case wipe && r.n >= 3:
		o.base, o.runs = kept, nil
		return rails.Confirmed
	case wipe:
		return rails.Quarantined
	case c.At.Sub(r.at) >= 10*time.Second:
		o.base, o.runs = kept, nil
	}
	return rails.Accepted
}

func TestWipeIsAsItsOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, kept := noon, rapid.IntRange(0, 120).Draw(t, "baseline")
		w, o := rails.Wipe{Baseline: kept}, &oracle{base: kept}
		for range 100 {
			at = at.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 9 * time.Second, 10 * time.Second, time.Minute}).Draw(t, "later"))
			left := rapid.SampledFrom([]int{0, 0, 0, rapid.IntRange(0, kept).Draw(t, "left")}).Draw(t, "some left")
			kept = rapid.SampledFrom([]int{kept - left, kept - left, 0, 1, 3, 9, 10, rapid.IntRange(0, 120).Draw(t, "kept")}).Draw(t, "change")
			c := rails.Count{At: at, Kept: kept, Left: left}
			before := w
			var got rails.WipeVerdict
			w, got = w.Judge(c)
			if want := o.judge(c); got != want || w.Baseline != o.base-o.left {
				t.Fatalf("%+v of %+v: %s and a baseline of %d, want %s and %d", c, before, got, w.Baseline, want, o.base-o.left)
			}
			if w.Held > 2 || (w.Held > 0) != (got == rails.Quarantined) {
				t.Fatalf("%s after %+v: held for %d looks", got, before, w.Held)
			}
			if next := w.Next(); !next.IsZero() && !next.After(at) {
				t.Fatalf("at %v look again at %v", at, next)
			}
		}
	})
}

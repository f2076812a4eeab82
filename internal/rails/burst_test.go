// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// names are those of machines from one number up to another.
func names(from, to int) []string {
	var list []string
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("m%04d", i))
	}
	return list
}

// served counts.
type served struct {
	Served, Waiting int
	Next            time.Duration // from noon, if somebody waits
}

func TestBurst(t *testing.T) {
	const s = time.Second
	type look struct {
		at     time.Duration
		on     []string
		cached bool // and not live
		want   served
	}
	cases := map[string]struct {
		reason  string
		members int
		looks   []look
	}{
		"One":          {"A person has turned it on.", 40, []look{{0, names(0, 1), false, served{1, 0, 0}}}},
		"OneCached":    {"Nobody has to ask the API server for that.", 40, []look{{0, names(0, 1), true, served{1, 0, 0}}}},
		"SmallCluster": {"Case 27: eight of eight, all at once.", 8, []look{{0, names(0, 8), false, served{8, 0, 0}}}},
		"Nine":         {"A small Cluster never waits, also where more are on than it has members.", 9, []look{{0, names(0, 30), false, served{30, 0, 0}}}},
		"Forty": {
			"Case 28: ten of forty at once, the others when three looks agree.", 40, []look{
				{0, names(0, 40), false, served{10, 30, 10 * s}},
				{1 * s, names(0, 40), false, served{10, 30, 10 * s}},
				{10 * s, names(10, 40), false, served{0, 30, 20 * s}},
				{19 * s, names(10, 40), false, served{0, 30, 20 * s}},
				{20 * s, names(10, 40), false, served{30, 0, 0}},
			},
		},
		"OneInTen":  {"Of five hundred fifty.", 500, []look{{0, names(0, 500), false, served{50, 450, 10 * s}}}},
		"NotLive":   {"What a cache says confirms nothing; half a minute is the most that a person waits.", 40, []look{{0, names(0, 40), true, served{10, 30, 0}}, {29 * s, names(0, 40), true, served{10, 30, 0}}, {30 * s, names(0, 40), true, served{40, 0, 0}}}},
		"LooksFail": {"The API server answers once.", 40, []look{{0, names(0, 11), false, served{10, 1, 10 * s}}, {25 * s, names(0, 11), true, served{10, 1, 10 * s}}, {31 * s, names(0, 11), true, served{11, 0, 0}}}},
		"FirstLookIsLate": {
			"After half a minute one look is enough.", 40, []look{
				{0, names(0, 11), true, served{10, 1, 0}}, {25 * s, names(0, 11), false, served{10, 1, 30 * s}}, {30 * s, names(0, 11), true, served{11, 0, 0}},
			},
		},
		"OneByOne": {
			"The eleventh within ten seconds waits, and so does whoever comes before ten of them are longer ago.", 40, []look{
				{0, names(0, 1), true, served{1, 0, 0}},
				{1 * s, names(0, 10), true, served{10, 0, 0}},
				{9 * s, names(0, 11), true, served{10, 1, 9 * s}},
				{10 * s, names(0, 12), true, served{10, 2, 9 * s}},
				{11 * s, names(0, 13), false, served{11, 2, 21 * s}},
			},
		},
		"ServedStayServed": {
			"What was let through and could not be done yet is let through again.", 40, []look{
				{0, names(0, 3), true, served{3, 0, 0}}, {60 * s, names(0, 3), true, served{3, 0, 0}}, {120 * s, names(0, 13), true, served{13, 0, 0}},
			},
		},
		"TurnedOff": {
			"Somebody saw the mistake: who waits stays, and begins anew if it is turned on again.", 40, []look{
				{0, names(0, 40), false, served{10, 30, 10 * s}},
				{5 * s, nil, false, served{}},
				{7 * s, names(0, 40), false, served{10, 30, 17 * s}},
				{10 * s, names(0, 40), false, served{10, 30, 17 * s}},
			},
		},
		"Restart": {
			"Another manager serves ten of those that are left, and asks three times for the others.", 40, []look{
				{0, names(10, 40), false, served{10, 20, 10 * s}},
			},
		},
		"ServedAndGoneStillCount": {
			"Machines that were killed a moment ago are a part of the burst.", 40, []look{
				{0, names(0, 10), true, served{10, 0, 0}}, {5 * s, names(10, 20), false, served{0, 10, 15 * s}},
			},
		},
		"ClockWasSetBack": {
			"Nobody waits until that time comes again.", 40, []look{
				{0, names(0, 11), true, served{10, 1, 0}}, {-3600 * s, names(10, 11), true, served{0, 1, -3600 * s}}, {-3570 * s, names(10, 11), true, served{1, 0, 0}},
			},
		},
		"NamedTwice": {"One machine is one.", 40, []look{{0, slices.Concat(names(0, 10), names(0, 10)), true, served{10, 0, 0}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b rails.Burst
			for i, l := range tc.looks {
				var p rails.KillPlan
				k := rails.KillSwitches{Now: after(l.at), On: l.on, Members: tc.members}
				if !l.cached {
					k.Shown = l.on
				}
				b, p = b.Judge(k)
				got := served{Served: len(p.Served), Waiting: len(p.Waiting)}
				if got.Waiting > 0 {
					got.Next = p.Next.Sub(noon)
				}
				if diff := cmp.Diff(l.want, got); diff != "" {
					t.Fatalf("%s\nlook %d: -want, +got:\n%s", tc.reason, i, diff)
				}
			}
		})
	}
}

func TestBurstServesInOrderOfNames(t *testing.T) {
	on := names(0, 12)
	slices.Reverse(on)
	_, p := rails.Burst{}.Judge(rails.KillSwitches{Now: noon, On: on, Members: 40})
	if diff := cmp.Diff(names(0, 10), p.Served) + cmp.Diff(names(10, 12), p.Waiting); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if on[0] != "m0011" {
		t.Error("somebody else's list was sorted")
	}
}

// TestALookConfirmsWhomItShows has one of two that wait be off in each list.
func TestALookConfirmsWhomItShows(t *testing.T) {
	var b rails.Burst
	var p rails.KillPlan
	for i := range 3 {
		b, p = b.Judge(rails.KillSwitches{Now: after(time.Duration(i) * rails.Apart), On: names(0, 12), Members: 40, Shown: names(0, 11)})
	}
	if diff := cmp.Diff(names(0, 11), p.Served) + cmp.Diff(names(11, 12), p.Waiting); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestABurstOfAnyKind has people turn switches on and off, and looks fail, or not show some. Whoever is on is
// in the plan once. No more are served within ten seconds of being seen than may be, and
// everybody else after half a minute, or after three live looks, ten seconds apart.
func TestABurstOfAnyKind(t *testing.T) {
	type turned struct {
		at     time.Time
		atOnce bool
		looks  []time.Time // live, that counted
	}
	rapid.Check(t, func(t *rapid.T) {
		var b rails.Burst
		now, members := noon, rapid.SampledFrom([]int{5, 9, 10, 40, 150}).Draw(t, "members")
		on, made := map[string]*turned{}, 0
		var atOnce []time.Time
		for range 20 {
			now = now.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms")) * time.Millisecond)
			more := rapid.SampledFrom([]int{0, 1, 9, 11, 40}).Draw(t, "more")
			for _, name := range names(made, made+more) {
				on[name] = &turned{at: now}
			}
			made += more
			off := rapid.IntRange(0, 40).Draw(t, "off")
			for _, name := range names(off, min(made, off+rapid.IntRange(0, 20).Draw(t, "many"))) {
				delete(on, name)
			}
			list := slices.Collect(maps.Keys(on))
			k := rails.KillSwitches{Now: now, On: list, Members: members}
			live := rapid.Bool().Draw(t, "live")
			hidden := names(0, rapid.SampledFrom([]int{0, 0, 20}).Draw(t, "hidden"))
			if live {
				k.Shown = slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(hidden, name) })
			}
			var p rails.KillPlan
			before := b
			b, p = b.Judge(k)
			planned := slices.Sorted(slices.Values(slices.Concat(p.Served, p.Waiting)))
			if slices.Sort(list); !slices.Equal(list, planned) {
				t.Fatalf("on are %v, in the plan %v", list, planned)
			}
			for name, m := range on {
				if n := len(m.looks); slices.Contains(k.Shown, name) && (n == 0 || now.Sub(m.looks[n-1]) >= rails.Apart) {
					m.looks = append(m.looks, now)
				}
			}
			for _, name := range p.Served {
				m := on[name]
				if m.atOnce {
					continue
				}
				if m.at.Equal(now) {
					m.atOnce = true
					atOnce = append(atOnce, now)
				} else if len(m.looks) < 3 && now.Sub(m.at) < 30*time.Second {
					t.Fatalf("%s is served %s after it was on, after looks at %v", name, now.Sub(m.at), m.looks)
				}
			}
			atOnce = slices.DeleteFunc(atOnce, func(at time.Time) bool { return now.Sub(at) >= 10*time.Second })
			if members >= 10 && len(atOnce) > max(10, members/10) {
				t.Fatalf("%d are served at once", len(atOnce))
			}
			for _, name := range p.Waiting {
				if m := on[name]; m.atOnce || len(m.looks) >= 3 || now.Sub(m.at) >= 30*time.Second || members < 10 {
					t.Fatalf("%s waits since %s, after looks at %v", name, now.Sub(m.at), m.looks)
				} else if got := b.Until(name); !got.Equal(m.at.Add(30 * time.Second)) {
					t.Fatalf("%s is on since %s, and waits until %s", name, m.at, got)
				}
			}
			if len(p.Waiting) > 0 != !p.Next.IsZero() || live && len(hidden) == 0 && !p.Next.IsZero() && !p.Next.After(now) {
				t.Fatalf("%d wait, and next is %v", len(p.Waiting), p.Next)
			}
			if _, again := before.Judge(k); !reflect.DeepEqual(p, again) {
				t.Fatalf("the same look says %+v and %+v", p, again)
			}
		}
	})
}

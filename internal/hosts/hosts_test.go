// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
)

var (
	noon    = time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)
	address = hosts.ID{Kind: hosts.Address, Value: "192.0.2.42:22", Scope: "RemoteMachine"}
	other   = hosts.ID{Kind: hosts.Address, Value: "192.0.2.43:22", Scope: "RemoteMachine"}
	image   = hosts.ID{Kind: hosts.MachineID, Value: "0123456789abcdef0123456789abcdef"}
)

// claim returns a claim that named its host some minutes after noon.
func claim(name string, minute int, change func(*hosts.Claim)) hosts.Claim {
	at := noon.Add(time.Duration(minute) * time.Minute)
	c := hosts.Claim{Namespace: "farm", Name: name, Wants: []hosts.ID{address}, Since: at, Created: at}
	if change != nil {
		change(&c)
	}
	return c
}

func uses(minute int) func(*hosts.Claim) {
	return func(c *hosts.Claim) { c.Has, c.MadeAt = c.Wants, noon.Add(time.Duration(minute)*time.Minute) }
}

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		reason    string
		mine, o   hosts.Claim
		want      hosts.Standing
		wantOther hosts.Standing
	}{
		"OtherHosts": {
			reason: "Another address is another host.",
			mine:   claim("a", 0, nil), o: claim("b", 1, func(c *hosts.Claim) { c.Wants = []hosts.ID{other} }),
			want: hosts.Alone, wantOther: hosts.Alone,
		},
		"WhoCameFirstInTime": {
			reason: "No claim uses it yet: the earlier one counts, whatever it is called.",
			mine:   claim("z", 0, nil), o: claim("a", 1, nil), want: hosts.First, wantOther: hosts.Second,
		},
		"AnEditComesSecond": {
			reason: "An old object that has begun to name the host of another is not the first.",
			mine:   claim("a", 0, func(c *hosts.Claim) { c.Since = time.Time{} }), o: claim("b", 5, nil),
			want: hosts.Second, wantOther: hosts.First,
		},
		"WhoUsesIt": {
			reason: "A machine that runs is never taken away for a claim.",
			mine:   claim("a", 0, nil), o: claim("b", 5, uses(7)), want: hosts.Second, wantOther: hosts.First,
		},
		"BothUseIt": {
			reason: "Known too late: the machine that was there first counts.",
			mine:   claim("a", 0, uses(9)), o: claim("b", 5, uses(7)), want: hosts.Second, wantOther: hosts.First,
		},
		"WhoUsesAnother": {
			reason: "A machine on another host gives no right to this one.",
			mine: claim("a", 0, func(c *hosts.Claim) {
				c.Since, c.Has, c.MadeAt = noon.Add(time.Hour), []hosts.ID{other}, noon
			}),
			o: claim("b", 5, nil), want: hosts.Second, wantOther: hosts.First,
		},
		"TheOldHostUntilTheMachineLeft": {
			reason: "An edit applies at the next window: until then the machine is where it was.",
			mine:   claim("a", 0, func(c *hosts.Claim) { c.Wants, c.Has = []hosts.ID{other}, []hosts.ID{address} }),
			o:      claim("b", -5, nil), want: hosts.First, wantOther: hosts.Second,
		},
		"SameInstant": {
			reason: "Manifests that were copied are applied in one second: the name decides.",
			mine:   claim("a", 0, nil), o: claim("b", 0, nil), want: hosts.First, wantOther: hosts.Second,
		},
		"AnotherNamespace": {
			reason: "A host is one host.",
			mine:   claim("a", 0, nil), o: claim("a", 1, func(c *hosts.Claim) { c.Namespace = "lab" }),
			want: hosts.First, wantOther: hosts.Second,
		},
		"TheImageOfAnother": {
			reason: "Images are copied with their machine ID: it is said, and both go on.",
			mine:   claim("a", 0, func(c *hosts.Claim) { c.Wants, c.Has = nil, []hosts.ID{image} }),
			o:      claim("b", 1, func(c *hosts.Claim) { c.Wants, c.Has = []hosts.ID{other}, []hosts.ID{image} }),
			want:   hosts.Suspected, wantOther: hosts.Suspected,
		},
		"TheImageOfAnotherIsNotItsHost": {
			reason: "A machine made from a copy of the image, on another host, gives no right to this one.",
			mine:   claim("a", 0, func(c *hosts.Claim) { c.Wants = []hosts.ID{address, image} }),
			o:      claim("b", 5, func(c *hosts.Claim) { c.Has, c.MadeAt = []hosts.ID{other, image}, noon }),
			want:   hosts.First, wantOther: hosts.Second,
		},
		"TheOwnerHasIt": {
			reason: "The order does not matter: a request to one object holds for the other.",
			mine:   claim("a", 0, nil), o: claim("b", 1, func(c *hosts.Claim) { c.Request = "java" }),
			want: hosts.Withheld, wantOther: hosts.Second,
		},
		"AnOwnerOfAnotherNamespace": {
			reason: "Write access there gives none here.",
			mine:   claim("a", 0, nil), o: claim("b", 1, func(c *hosts.Claim) { c.Request, c.Namespace = "java", "lab" }),
			want: hosts.First, wantOther: hosts.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if v := hosts.Judge(tc.mine, []hosts.Claim{tc.o}); v.Standing != tc.want {
				t.Errorf("%s\nJudge(mine) = %+v, want %d", tc.reason, v, tc.want)
			}
			if v := hosts.Judge(tc.o, []hosts.Claim{tc.mine}); v.Standing != tc.wantOther {
				t.Errorf("%s\nJudge(other) = %+v, want %d", tc.reason, v, tc.wantOther)
			}
			if got := tc.mine.WithheldBy(tc.o); got != (tc.want == hosts.Withheld) {
				t.Errorf("%s\nWithheldBy = %v", tc.reason, got)
			}
		})
	}
}

func TestTheForemostIsNamed(t *testing.T) {
	mine := claim("m", 9, nil)
	v := hosts.Judge(mine, []hosts.Claim{claim("d", 12, nil), claim("c", 2, nil), claim("b", 1, nil), claim("e", 11, nil)})
	if v.Standing != hosts.Second || v.With.Name != "b" || v.ID != address || !v.More {
		t.Errorf("%+v", v)
	}
	v = hosts.Judge(mine, []hosts.Claim{claim("d", 12, nil), claim("e", 11, nil), claim("x", 1, func(c *hosts.Claim) { c.Wants = nil })})
	if v.Standing != hosts.First || v.With.Name != "e" || !v.More {
		t.Errorf("%+v", v)
	}
	if v = hosts.Judge(mine, []hosts.Claim{claim("e", 11, nil)}); v.More {
		t.Errorf("there is one other: %+v", v)
	}
}

// claims draws claims of one host that no owner has taken back.
func claims(t *rapid.T) []hosts.Claim {
	var all []hosts.Claim
	for i := range rapid.IntRange(2, 6).Draw(t, "claims") {
		minute := func(what string) time.Time {
			return noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, what)) * time.Minute)
		}
		c := hosts.Claim{
			Namespace: rapid.SampledFrom([]string{"farm", "lab"}).Draw(t, "namespace"), Name: string(rune('a' + i)),
			Wants: []hosts.ID{address}, Since: minute("since"), Created: minute("created"),
		}
		if rapid.Bool().Draw(t, "new") {
			c.Since = time.Time{}
		}
		all = append(all, c)
	}
	return all
}

func others(all []hosts.Claim, i int) []hosts.Claim {
	var rest []hosts.Claim
	for j, c := range all {
		if j != i {
			rest = append(rest, c)
		}
	}
	return rest
}

func TestExactlyOneActsOnAFreshHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := claims(t)
		for range 10 {
			acting := 0
			for i := range all {
				if hosts.Judge(all[i], others(all, i)).Standing != hosts.Second {
					acting++
					all[i].Has, all[i].MadeAt = all[i].Wants, noon
				}
			}
			if acting != 1 {
				t.Fatalf("%d act: %+v", acting, all)
			}
			// A claim that uses the host continues to, until its machine leaves.
			if i := rapid.IntRange(0, len(all)-1).Draw(t, "leaves"); len(all[i].Has) > 0 {
				all[i].Has, all[i].MadeAt = nil, time.Time{}
			}
		}
	})
}

// TestPartialViewsNeverAllowTwo shows each claim only some of the others, as a stale cache does.
func TestPartialViewsNeverAllowTwo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var book hosts.Reservations
		all, acting := claims(t), 0
		for i := range all {
			var seen []hosts.Claim
			for _, o := range others(all, i) {
				o.Has = append(o.Has, book.Taken(o.Name, o.Wants, noon)...)
				if rapid.Bool().Draw(t, "seen") {
					seen = append(seen, o)
				}
			}
			if hosts.Judge(all[i], seen).Standing != hosts.Second && book.Take(all[i].Name, all[i].Wants, noon) {
				acting++
			}
		}
		if acting > 1 {
			t.Fatalf("%d act: %+v", acting, all)
		}
	})
}

func TestReservations(t *testing.T) {
	var b hosts.Reservations
	take := func(who string, want bool, ids ...hosts.ID) {
		t.Helper()
		if got := b.Take(who, ids, noon); got != want {
			t.Errorf("%s takes %v: %v, want %v", who, ids, got, want)
		}
	}
	take("a", true, address)
	take("a", true, address)
	take("b", false, other, address)
	take("b", true, other)
	take("a", true, image)
	take("c", true, address)
	b.Leave("b")
	b.Leave("none")
	take("c", true, address, other)
	ids := []hosts.ID{address, other, image}
	for name, want := range map[string][]hosts.ID{"a": {image}, "b": nil, "c": {address, other}, "none": nil} {
		if got := b.Taken(name, ids, noon); !slices.Equal(got, want) {
			t.Errorf("%s has taken %v, want %v", name, got, want)
		}
	}
	take("a", true)
	if got := b.Taken("a", ids, noon); len(got) > 0 {
		t.Errorf("a claim without a host takes one: %v", got)
	}
}

func TestAReservationExpires(t *testing.T) {
	var b hosts.Reservations
	ids := []hosts.ID{address}
	later := noon.Add(59 * time.Second)
	if !b.Take("paused", ids, noon) || b.Take("b", ids, later) || len(b.Taken("paused", ids, later)) != 1 {
		t.Error("another claim may within a minute")
	}
	later = noon.Add(time.Minute)
	if got := b.Taken("paused", ids, later); len(got) > 0 {
		t.Errorf("a claim with an expired reservation uses %v", got)
	}
	if !b.Take("b", ids, later) {
		t.Error("an expired reservation keeps the host from others")
	}
	b.Leave("paused")
	if got := b.Taken("b", ids, later); len(got) != 1 {
		t.Error("a late claim removed the reservation of the next")
	}
}

func TestAffected(t *testing.T) {
	copies := func(n int) []hosts.Claim {
		var all []hosts.Claim
		for i := n; i > 0; i-- {
			all = append(all, claim("c", i, func(c *hosts.Claim) { c.Name = fmt.Sprintf("c%03d", i) }))
		}
		return all
	}
	for name, tc := range map[string]struct {
		reason string
		mine   hosts.Claim
		n      int
		want   []string
	}{
		"OfFewAll":     {"Two or three say whom they wait for.", claim("a", 0, nil), 3, []string{"c001", "c002", "c003"}},
		"TheForemost":  {"It says that it is not alone.", claim("a", 500, nil), 3, []string{"c001"}},
		"InTheMiddle":  {"Those before it do not wait for it.", claim("a", 2, nil), 3, []string{"c001", "c002", "c003"}},
		"OfManyTheFew": {"One of the foremost comes next.", claim("a", 0, nil), 999, []string{"c001", "c002", "c003", "c004", "c005", "c006", "c007", "c008"}},
		"OfManyBehind": {"Only the first.", claim("a", 5000, nil), 999, []string{"c001"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range hosts.Affected(tc.mine, address, copies(tc.n)) {
				got = append(got, c.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s\n%v, want %v", tc.reason, got, tc.want)
			}
		})
	}
	asked := claim("a", 5000, func(c *hosts.Claim) { c.Request = "java" })
	if got := hosts.Affected(asked, address, copies(999)); len(got) != hosts.MaxWithheld {
		t.Errorf("an owner's request wakes %d", len(got))
	}
	asked.Namespace = "lab"
	if got := hosts.Affected(asked, address, copies(999)); len(got) != 1 {
		t.Errorf("a request in another namespace wakes %d", len(got))
	}
}

// TestTheNextClaimIsAffected removes one claim, and checks that the next one is enqueued.
func TestTheNextClaimIsAffected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := claims(t)
		for i := range all {
			if rapid.Bool().Draw(t, "uses") {
				all[i].Has, all[i].MadeAt = all[i].Wants, noon.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "made"))*time.Minute)
			}
		}
		gone := rapid.IntRange(0, len(all)-1).Draw(t, "gone")
		rest := others(all, gone)
		concerned := hosts.Affected(all[gone], address, rest)
		for i, c := range rest {
			next := hosts.Judge(c, others(rest, i)).Standing != hosts.Second
			woken := slices.ContainsFunc(concerned, func(o hosts.Claim) bool { return o.Name == c.Name })
			if next && !woken {
				t.Fatalf("%s comes next and is not woken: %+v", c.Name, rest)
			}
		}
	})
}

// TestRecordingSinceKeepsTheOrder checks that recording Since keeps the order, whatever the clocks are.
func TestRecordingSinceKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := claims(t)
		mine := all[0]
		mine.Since = time.Time{}
		rest := all[1:]
		now := noon.Add(time.Duration(rapid.IntRange(-600, 600).Draw(t, "now")) * time.Second)
		written := mine
		written.Since = hosts.After(mine, rest, now)
		for _, o := range rest {
			if !o.Since.IsZero() && written.Before(o) {
				t.Fatalf("after %v it says %v, and comes before it", o.Since, written.Since)
			}
		}
		if written.Since.Before(now.Truncate(time.Second)) {
			t.Fatalf("%v is before now", written.Since)
		}
	})
}

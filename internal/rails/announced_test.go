// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

func TestCovers(t *testing.T) {
	inTime := rails.Announcement{End: noon, Since: after(-10 * time.Minute), Generation: 3}
	with := func(change func(*rails.Announcement)) rails.Announcement {
		a := inTime
		change(&a)
		return a
	}
	for name, tc := range map[string]struct {
		reason     string
		announced  rails.Announcement
		end        time.Time
		generation int64
		want       bool
	}{
		"InTime":       {"Ten minutes are enough.", inTime, noon, 3, true},
		"LongBefore":   {"So is a day.", with(func(a *rails.Announcement) { a.Since = after(-24 * time.Hour) }), noon, 3, true},
		"TooLate":      {"A second less is not.", with(func(a *rails.Announcement) { a.Since = after(time.Second - 10*time.Minute) }), noon, 3, false},
		"JustEdited":   {"Case 19: edited a minute before its new end.", rails.Announcement{End: noon, Since: after(-time.Minute), Generation: 4}, noon, 4, false},
		"Edited":       {"The spec is another, whatever it says.", inTime, noon, 4, false},
		"AnotherEnd":   {"By a zone or a clock that changed, this is not the end that was announced.", inTime, after(time.Hour), 3, false},
		"AnotherZone":  {"The same instant is the same in any zone.", inTime, noon.In(time.FixedZone("", 3600)), 3, true},
		"Nothing":      {"Nothing was announced.", rails.Announcement{}, noon, 0, false},
		"NothingEnds":  {"No announcement covers no end.", rails.Announcement{}, time.Time{}, 0, false},
		"SinceUnknown": {"It is unknown when the end was announced.", with(func(a *rails.Announcement) { a.Since = time.Time{} }), noon, 3, false},
		"InTheFuture":  {"The clock that announced it was ahead.", with(func(a *rails.Announcement) { a.Since = after(time.Hour) }), noon, 3, false},
	} {
		if got := tc.announced.Covers(tc.end, tc.generation); got != tc.want {
			t.Errorf("%s: %t, want %t: %s", name, got, tc.want, tc.reason)
		}
	}
}

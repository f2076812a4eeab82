// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

func TestReclaimed(t *testing.T) {
	now := time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)
	ago := func(ages ...time.Duration) []time.Time {
		var times []time.Time
		for _, age := range ages {
			times = append(times, now.Add(-age))
		}
		return times
	}
	cases := map[string]struct {
		reason string
		times  []time.Time
		want   []time.Time
		rapid  bool
	}{
		"First":        {"An owner came back.", nil, ago(0), false},
		"Second":       {"It happens.", ago(time.Minute), ago(time.Minute, 0), false},
		"Third":        {"Something is wrong.", ago(9*time.Minute, time.Minute), ago(9*time.Minute, time.Minute, 0), true},
		"AtTheEdge":    {"Ten minutes are inside.", ago(10*time.Minute, time.Minute), ago(10*time.Minute, time.Minute, 0), true},
		"PastTheEdge":  {"More are not.", ago(10*time.Minute+time.Second, time.Minute), ago(time.Minute, 0), false},
		"Fourth":       {"It goes on; the oldest is not needed any more.", ago(3*time.Minute, 2*time.Minute, time.Minute), ago(2*time.Minute, time.Minute, 0), true},
		"AnyOrder":     {"People edit annotations.", ago(time.Minute, 2*time.Minute), ago(2*time.Minute, time.Minute, 0), true},
		"ClockSetBack": {"A reclaim that was ahead a moment ago was one.", ago(-time.Minute), append(ago(-time.Minute), now), false},
		"FarAhead":     {"A time in the future does not count forever.", ago(-time.Hour), ago(0), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, rapid := lifecycle.Reclaimed(tc.times, now)
			if diff := cmp.Diff(tc.want, got); diff != "" || rapid != tc.rapid {
				t.Errorf("%s\nrapid %t, want %t; -want, +got:\n%s", tc.reason, rapid, tc.rapid, diff)
			}
		})
	}
}

func TestSurge(t *testing.T) {
	for _, tc := range []struct {
		reclaims, machines int
		want               bool
	}{
		{0, 0, false},
		{3, 3, false},
		{4, 4, true},
		{4, 39, true},
		{4, 40, false},
		{10, 100, false},
		{11, 100, true},
		{11, 109, true},
		{11, 110, false},
	} {
		if got := lifecycle.Surge(tc.reclaims, tc.machines); got != tc.want {
			t.Errorf("%d reclaims among %d machines: %t, want %t", tc.reclaims, tc.machines, got, tc.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

func TestWarmUp(t *testing.T) {
	const s = time.Second
	learned := rails.Lead{Since: noon, Lease: 15 * s, Sampled: true}
	with := func(change func(*rails.Lead)) rails.Lead {
		l := learned
		change(&l)
		return l
	}
	for name, tc := range map[string]struct {
		reason string
		lead   rails.Lead
		at     time.Duration
		want   rails.WarmUp
		next   time.Duration // 0 means never
	}{
		"Nothing":      {"Without any knowledge no machine leaves.", rails.Lead{}, time.Hour, rails.Cold, 0},
		"JustNow":      {"What started a moment before may be in no list.", learned, 0, rails.Cold, 10 * s},
		"AlmostWindow": {"For a whole window.", learned, 10*s - 1, rails.Cold, 10 * s},
		"Window":       {"Then nothing from before counts any more. The other manager may still believe that it leads.", learned, 10 * s, rails.Learning, 15 * s},
		"Lease":        {"Now it cannot.", learned, 15 * s, rails.Warm, 0},
		"ShortLease":   {"A lease that is over before the window changes nothing.", with(func(l *rails.Lead) { l.Lease = s }), 10 * s, rails.Warm, 0},
		"Unsampled":    {"Our clock may be wrong.", with(func(l *rails.Lead) { l.Sampled = false }), time.Hour, rails.Cold, 0},
		"SetBack":      {"A clock that was set back makes it longer, never shorter.", learned, -time.Hour, rails.Cold, 10 * s},
	} {
		got, next := tc.lead.WarmUp(after(tc.at))
		if got != tc.want || next.IsZero() != (tc.next == 0) || tc.next != 0 && !next.Equal(after(tc.next)) {
			t.Errorf("%s: %d until %v, want %d until %s: %s", name, got, next, tc.want, tc.next, tc.reason)
		}
	}
}

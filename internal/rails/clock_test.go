// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

func TestClock(t *testing.T) {
	const right, minute, wrong = 0, time.Minute, time.Minute + 1
	for name, tc := range map[string]struct {
		reason  string
		samples []time.Duration
		want    rails.Trust
	}{
		"None":          {"There is no sample yet, and nothing is wrong.", nil, rails.Unsampled},
		"First":         {"One sample is enough to begin with.", []time.Duration{right}, rails.Trusted},
		"AMinute":       {"A minute is no more than a minute.", []time.Duration{minute, -minute}, rails.Trusted},
		"Ahead":         {"Case 51: one that is wrong is enough.", []time.Duration{right, right, right, 6 * time.Hour}, rails.Suspect},
		"Behind":        {"Either way.", []time.Duration{-wrong}, rails.Suspect},
		"JustOver":      {"A nanosecond counts.", []time.Duration{wrong}, rails.Suspect},
		"VeryFarBehind": {"The smallest duration.", []time.Duration{math.MinInt64}, rails.Suspect},
		"Two":           {"Two are not enough.", []time.Duration{wrong, right, right}, rails.Suspect},
		"Three":         {"Three are.", []time.Duration{wrong, right, right, right}, rails.Trusted},
		"NotInARow":     {"A wrong one between them begins anew.", []time.Duration{wrong, right, right, wrong, right, right}, rails.Suspect},
		"Again":         {"The next time it takes three again.", []time.Duration{wrong, right, right, right, wrong, right, right}, rails.Suspect},
	} {
		var c rails.Clock
		for _, ahead := range tc.samples {
			c = c.Sample(ahead)
		}
		if got := c.Trust(); got != tc.want {
			t.Errorf("%s: %d, want %d: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestSuspicionEndsAfterThreeInARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c rails.Clock
		right, suspect := 0, false // samples in a row
		for range 50 {
			ahead := time.Duration(rapid.Int64Range(-100, 100).Draw(t, "seconds")) * time.Second
			c = c.Sample(ahead)
			if ahead > time.Minute || ahead < -time.Minute {
				right, suspect = 0, true
			} else if right++; right >= 3 {
				suspect = false
			}
			if got := c.Trust(); (got == rails.Suspect) != suspect || got == rails.Unsampled {
				t.Fatalf("%d after %d in a row are right", got, right)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

func TestAnnounced(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		since    time.Time
		observed int64
		want     bool
	}{
		"InTime":       {"Ten minutes are enough.", after(-10 * time.Minute), 3, true},
		"LongBefore":   {"A day is enough.", after(-24 * time.Hour), 3, true},
		"TooLate":      {"A second less is not.", after(time.Second - 10*time.Minute), 3, false},
		"JustEdited":   {"Case 19: edited a minute before its new end.", after(-time.Minute), 3, false},
		"Edited":       {"The spec has changed since.", after(-10 * time.Minute), 2, false},
		"SinceUnknown": {"It is unknown when the end was announced.", time.Time{}, 3, false},
		"InTheFuture":  {"The clock that announced it was ahead.", after(time.Hour), 3, false},
	} {
		if got := rails.Announced(noon, tc.since, tc.observed, 3); got != tc.want {
			t.Errorf("%s: %t, want %t: %s", name, got, tc.want, tc.reason)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

func TestReportsWaitForOtherOwners(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		owners int
		asked  time.Time
		want   time.Duration
	}{
		"no owner":                 {0, now, 0},
		"its own owner":            {1, now, 0},
		"another owner":            {2, now, time.Second},
		"two hundred":              {200, now.Add(-30 * time.Second), time.Second},
		"almost long enough":       {2, now.Add(-time.Minute + time.Millisecond), time.Millisecond},
		"long enough":              {2, now.Add(-time.Minute), 0},
		"by a clock that is wrong": {2, now.Add(time.Second), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var tracker wake.ReclaimTracker
			for range tc.owners {
				defer tracker.Serve()()
			}
			if got := tracker.Wait([]time.Time{now.Add(-time.Hour), tc.asked}, now); got != tc.want {
				t.Errorf("Wait = %v; want %v", got, tc.want)
			}
		})
	}
}

func TestOneOwnerDelaysNoReport(t *testing.T) {
	var tracker wake.ReclaimTracker
	now := time.Now()
	asked := []time.Time{now}
	first, second := tracker.Serve(), tracker.Serve()
	second()
	if got := tracker.Wait(asked, now); got != 0 {
		t.Errorf("with one owner left: Wait = %v; want 0", got)
	}
	third := tracker.Serve()
	if got := tracker.Wait(nil, now); got != 0 {
		t.Errorf("without a request: Wait = %v; want 0", got)
	}
	third()
	first()
}

// SPDX-License-Identifier: Apache-2.0

package departurecap_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// TestHowLongAFleetTakes checks how long it takes until all machines of a Cluster that are due at once have
// started to leave.
func TestHowLongAFleetTakes(t *testing.T) {
	for _, tc := range []struct {
		machines, batches int
		last              time.Duration
	}{
		{1, 1, 0},
		{5, 5, 40 * time.Second},
		{10, 10, 90 * time.Second},
		{20, 20, 190 * time.Second},
		{39, 39, 380 * time.Second},
		{40, 39, 380 * time.Second},
		{60, 49, 480 * time.Second},
		{100, 60, 590 * time.Second},
		{200, 75, 740 * time.Second},
		{500, 93, 920 * time.Second},
		{1000, 107, 1060 * time.Second},
		{5000, 138, 1370 * time.Second},
	} {
		t.Run(fmt.Sprint(tc.machines), func(t *testing.T) {
			c := leaving(tc.machines, departurecap.Unscheduled)
			c.run()
			if len(c.starts) != tc.machines || c.Active != 0 {
				t.Fatalf("%d started, %d stayed", len(c.starts), c.Active)
			}
			if got, last := len(c.batches()), c.starts[len(c.starts)-1].At.Sub(noon); got != tc.batches || last != tc.last {
				t.Errorf("%d batches, the last after %s, want %d and %s", got, last, tc.batches, tc.last)
			}
			if want := cycles(tc.machines); !slices.Equal(c.batches(), want) {
				t.Errorf("batches of %v, want %v", c.batches(), want)
			}
		})
	}
}

// cycles returns the batches of a planner that runs every 10 s.
func cycles(machines int) []int {
	var batches []int
	for machines > 0 {
		batch := max(1, machines/20)
		batches = append(batches, batch)
		machines -= batch
	}
	return batches
}

// TestASharedWindowEnd ends the announced windows of a whole Cluster together. The limit does not shrink, and
// the last machine starts within six and a half minutes, whatever the size.
func TestASharedWindowEnd(t *testing.T) {
	for machines := 1; machines <= 5000; machines += 1 + machines/7 {
		c := leaving(machines, departurecap.Scheduled)
		c.run()
		if len(c.starts) != machines || c.Active != 0 {
			t.Fatalf("of %d machines %d start, %d stay", machines, len(c.starts), c.Active)
		}
		for _, n := range c.batches() {
			if may := max(1, machines/20); n > may {
				t.Fatalf("of %d machines %d start at once, want at most %d", machines, n, may)
			}
		}
		if last := c.starts[len(c.starts)-1].At.Sub(noon); last > 390*time.Second {
			t.Errorf("the last of %d machines starts after %s", machines, last)
		}
	}
}

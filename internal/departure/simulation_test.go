// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
)

// How long it takes until all machines of a Cluster have started to leave that are to leave
// at once, if nothing sets an end to it.
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
			c := leaving(tc.machines, departure.Unscheduled)
			c.run()
			if len(c.starts) != tc.machines || c.Active != 0 || c.forced() != 0 {
				t.Fatalf("%d started, %d stayed, %d were forced", len(c.starts), c.Active, c.forced())
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

// cycles are the batches of an engine that looks once every 10 s, and no more often.
func cycles(machines int) []int {
	var batches []int
	for machines > 0 {
		batch := max(1, machines/20)
		batches = append(batches, batch)
		machines -= batch
	}
	return batches
}

// How many machines whose windows end together start at the latest instant there is.
func TestHowManyAreLate(t *testing.T) {
	for _, tc := range []struct{ machines, last, forced int }{
		{40, 1, 0},
		{100, 1, 0},
		{200, 15, 14},
		{500, 33, 32},
		{1000, 55, 53},
	} {
		t.Run(fmt.Sprint(tc.machines), func(t *testing.T) {
			c := leaving(tc.machines, departure.Scheduled)
			c.run()
			batches := c.batches()
			if last := batches[len(batches)-1]; last != tc.last || c.forced() != tc.forced || len(c.starts) != tc.machines {
				t.Errorf("a last batch of %d, %d of them forced, of %d; want %d, %d of %d", last, c.forced(), len(c.starts), tc.last, tc.forced, tc.machines)
			}
			if late := c.starts[len(c.starts)-1].At.Sub(noon); late > departure.Patience || tc.forced > 0 && late != departure.Patience {
				t.Errorf("the last starts %s late", late)
			}
		})
	}
}

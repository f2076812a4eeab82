// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
)

// pollCost bounds the CPU use of polling, as a divisor of one core: 5 %.
const pollCost = 20

// poll scans all processes every interval, or less often because of pollCost. It ends when ctx is done, or, with
// redial, when a subscription succeeds, which it returns.
func (d *Detector) poll(ctx context.Context, v *evaluator, interval time.Duration, redial bool) (Events, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan Events)
	if redial {
		go d.redial(ctx, found)
	}
	defer d.o.Metrics.PollInterval.Store(0)
	v.begin(Poll)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var cost costs
	// A blocked scan starts again. The time of the block does not count.
	var begun time.Time
	var used time.Duration
	walk := func() error {
		begun, used = d.o.Now(), d.o.CPUTime()
		return v.scanAll((*process.Table).Rewalk)
	}
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case conn := <-found:
			return conn, nil
		case <-timer.C:
		}
		d.o.Metrics.Polls.Add(1)
		if err := v.guarded(walk); err != nil {
			return nil, err
		}
		cost.add(d.o.CPUTime() - used)
		every := max(interval, pollCost*cost.least())
		d.o.Metrics.PollInterval.Store(int64(every))
		timer.Reset(every - d.o.Now().Sub(begun))
	}
}

// costs holds the CPU time of the last scans. The minimum is the cost of a scan, because the agent did other work
// during the others.
type costs struct {
	last [4]time.Duration
	n    int
}

func (c *costs) add(took time.Duration) {
	c.last[c.n%len(c.last)] = took
	c.n++
}

func (c *costs) least() time.Duration { return slices.Min(c.last[:min(c.n, len(c.last))]) }

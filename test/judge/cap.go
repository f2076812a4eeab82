// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"
)

const (
	// window is the period over which the cap counts starts of departures.
	window = 10 * time.Second
	// lately is how long a machine that left counts as a machine for announced window ends.
	lately = 10 * time.Minute
	// millionths is the unit of a fraction: with floating point, 0.29 of 100 would be 28.
	millionths = 1_000_000
)

// Cap requires that in any 10 s at most max(1, fraction of its machines) departures of one Cluster start, without
// exempt ones. Machines that join count as machines, so that the rule is never stricter than the manager. For the lane
// "scheduled", machines that started to leave in the last ten minutes count, too. The fraction is in millionths.
func Cap(fraction int64) Rule {
	return &limit{fraction: fraction, starts: map[Object][]start{}}
}

type limit struct {
	fraction int64
	world    world
	// starts are the starts of departures of a Cluster within the last ten minutes.
	starts map[Object][]start
}

type start struct {
	at time.Time
	id string
	// exempt starts do not count against the limit.
	exempt bool
}

func (*limit) Name() string { return "cap" }
func (*limit) Question() string {
	return "Do no more machines of a Cluster start to leave in any 10 s than may?"
}

func (*limit) End() []Verdict { return nil }

func (c *limit) Judge(r Record) []Verdict {
	before := c.world.machine(r)
	was, _ := before.departure()
	c.world.see(r)
	text, sets := r.Sent.sets(departureAnnotation)
	d, readable := departureOf(text)
	if !r.Object.isMachine() || !r.done("patch", "update") || !sets || !readable || r.Got == nil {
		return nil
	}
	if begun := was.Reason != "" && was.Since.Equal(d.Since); begun {
		return nil
	}
	return c.count(r, d.Lane)
}

func (c *limit) count(r Record, lane string) []Verdict {
	of := clusterOf(r)
	var left, recent []start
	for _, s := range c.starts[of] {
		if r.At.Sub(s.at) >= lately {
			continue
		}
		left = append(left, s)
		if !s.exempt && r.At.Sub(s.at) < window {
			recent = append(recent, s)
		}
	}
	this := start{r.At, r.ID, lane == exemptLane}
	c.starts[of] = append(left, this)
	if this.exempt {
		return nil
	}
	recent = append(recent, this)
	machines := int64(len(recent))
	if lane == scheduled {
		machines = int64(len(c.starts[of]))
	}
	for _, m := range c.world.of(of) {
		if m.runs() {
			machines++
		}
	}
	may := max(1, c.fraction*machines/millionths)
	if int64(len(recent)) <= may {
		return kept(r)
	}
	ids := make([]string, len(recent))
	for i, s := range recent {
		ids[i] = s.id
	}
	return []Verdict{{
		Object: of, At: r.At, IDs: ids,
		Broken: fmt.Sprintf("%d of %d machines started to leave within %v", len(recent), machines, window),
		Should: fmt.Sprintf("at most %d should have", may),
	}}
}

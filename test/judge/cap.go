// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"
)

const (
	// window is the time in which the starts of departures are counted.
	window = 10 * time.Second
	// patience is how long a departure may be put off that was announced.
	patience = 10 * time.Minute
	// rounding is what the instants of statuses and records may be off: they are whole seconds.
	rounding = time.Second
	// millionths is by what a fraction is counted: by binary ones 0.29 of 100 are 28.
	millionths = 1_000_000
)

// Cap is that in any 10 s no more departures of one Cluster start than max(1, fraction of its
// machines), but for those that wait for nobody and those that started ten minutes after the
// end that ScheduledMachine's status announced. Machines that join count as machines: in
// doubt the manager is right. The fraction is in millionths.
func Cap(fraction int64) Rule {
	return &limit{fraction: fraction, starts: map[Object][]start{}, ends: map[Object][]time.Time{}}
}

type limit struct {
	fraction int64
	world    world
	// starts are those of a Cluster within the window that are counted.
	starts map[Object][]start
	// ends are the last two instants at which the machine of a ScheduledMachine was to leave.
	ends map[Object][]time.Time
}

type start struct {
	at time.Time
	id string
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
	c.announced(r)
	text, sets := r.Sent.sets(departureAnnotation)
	d, readable := departureOf(text)
	if !r.Object.isMachine() || !r.done("patch", "update") || !sets || !readable || r.Got == nil {
		return nil
	}
	if begun := was.Reason != "" && was.Since.Equal(d.Since); begun || d.Lane == exemptLane || c.forced(r, d) {
		return nil
	}
	return c.count(r)
}

// announced notes when the machine of a ScheduledMachine is to leave.
func (c *limit) announced(r Record) {
	if !r.Object.isScheduledMachine() || !r.Accepted() || r.Got == nil {
		return
	}
	ends := c.ends[r.Object]
	switch at := r.Got.NextCleanup; {
	case r.Got.Gone:
		delete(c.ends, r.Object)
	case !at.IsZero() && (len(ends) == 0 || !ends[len(ends)-1].Equal(at)):
		c.ends[r.Object] = append(ends, at)[max(0, len(ends)-1):]
	}
}

// forced reports whether a departure started because it had been put off for long enough.
func (c *limit) forced(r Record, d departure) bool {
	if d.Lane != scheduled {
		return false
	}
	m := machine{Object: r.Object, State: *r.Got}
	for _, end := range c.ends[m.scheduledMachine()] {
		if !r.At.Before(end.Add(patience - rounding)) {
			return true
		}
	}
	return false
}

func (c *limit) count(r Record) []Verdict {
	of := clusterOf(r)
	var recent []start
	for _, s := range c.starts[of] {
		if r.At.Sub(s.at) < window {
			recent = append(recent, s)
		}
	}
	recent = append(recent, start{r.At, r.ID})
	c.starts[of] = recent
	machines := int64(len(recent))
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

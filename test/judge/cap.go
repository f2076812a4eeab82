// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
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

// Cap requires at most max(1, fraction of its machines) departures of one Cluster in any 10 s, without exempt ones.
// However late a departure is, it has no other limit. A machine counts if it runs and has had a Node, or if it started
// to leave within the 10 s. For announced window ends it counts if it runs, or if it started to leave within 10
// minutes. The fraction is in millionths.
func Cap(fraction int64) Rule {
	return &limit{
		name: "cap", question: "Do no more machines of a Cluster start to leave in any 10 s than may?",
		fraction: fraction, scope: func(m *machine) Object { return m.cluster }, starts: map[Object][]start{},
	}
}

// FleetCap is Cap for all Clusters of an API server together: many small Clusters are one fleet.
func FleetCap(fraction int64) Rule {
	return &limit{
		name: "fleet", question: "Do no more machines of all Clusters start to leave in any 10 s than may?",
		fraction: fraction, starts: map[Object][]start{},
		scope: func(m *machine) Object {
			return Object{Cluster: m.Cluster, Group: clusters.Group, Resource: clusters.Resource}
		},
	}
}

type limit struct {
	name, question string
	fraction       int64
	// scope returns what the limit of a machine is for: its Cluster, or all Clusters.
	scope func(*machine) Object
	world world
	// starts are the starts of departures within the last ten minutes.
	starts map[Object][]start
}

func (c *limit) Name() string     { return c.name }
func (c *limit) Question() string { return c.question }
func (*limit) End() []Verdict     { return nil }

func (c *limit) Judge(r Record) []Verdict {
	s := c.world.see(r)
	if s == nil {
		return nil
	}
	of := c.scope(s.machine)
	c.starts[of] = append(within(c.starts[of], s.at, lately), *s)
	if s.lane == exempt {
		return nil
	}
	recent := within(c.starts[of], s.at, window)
	machines := c.members(of, s.lane, len(recent))
	recent = slices.DeleteFunc(recent, func(s start) bool { return s.lane == exempt })
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

// members returns the number of machines from which the limit of a lane is computed. recent is the number of starts
// within the window.
func (c *limit) members(of Object, lane string, recent int) int64 {
	n := recent
	if lane == scheduled {
		n = len(c.starts[of])
	}
	for _, m := range c.world.machines {
		if m.parent.Name != "" && c.scope(m) == of && m.runs() && (lane == scheduled || c.world.ranOnce(m)) {
			n++
		}
	}
	return int64(n)
}

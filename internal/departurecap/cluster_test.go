// SPDX-License-Identifier: Apache-2.0

package departurecap_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// noon is when windows end in these tests.
var noon = time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)

// oneInTwenty is the default limit.
var oneInTwenty = fraction("0.05")

func fraction(s string) departurecap.Fraction {
	f, err := departurecap.ParseFraction(s)
	if err != nil {
		panic(err)
	}
	return f
}

func after(d time.Duration) time.Time { return noon.Add(d) }

// candidates returns n candidates of a lane that are due since noon.
func candidates(n int, lane departurecap.Lane) []departurecap.Candidate {
	list := make([]departurecap.Candidate, n)
	for i := range list {
		list[i] = departurecap.Candidate{Name: fmt.Sprintf("farm/m%04d", i), Lane: lane, Priority: 50, Since: noon}
		if lane == departurecap.Scheduled {
			list[i].End = noon
		}
	}
	return list
}

// A start is a candidate that started to leave.
type start struct {
	At   time.Time
	Name string
}

// A cluster is a Cluster whose plans are carried out.
type cluster struct {
	departurecap.Fleet
	limits   departurecap.Fraction
	starts   []start
	departed []time.Time
}

// leaving returns a Cluster of n machines that are all due.
func leaving(n int, lane departurecap.Lane) *cluster {
	return &cluster{Fleet: departurecap.Fleet{Now: noon, Counts: departurecap.Counts{Active: n}, Candidates: candidates(n, lane)}, limits: oneInTwenty}
}

// wake plans at an instant and carries out the plan. It panics if the plan names the same instant
// again, which would be an endless loop.
func (c *cluster) wake(at time.Time) departurecap.Plan {
	c.Now = at
	c.departed = departurecap.Within(c.departed, at, departurecap.MaxWait)
	c.Departed = len(c.departed)
	p := departurecap.Decide(c.Fleet, c.limits)
	if !p.Next.IsZero() && !p.Next.After(at) {
		panic(fmt.Sprintf("at %v look again at %v", at, p.Next))
	}
	admitted := map[string]bool{}
	for _, a := range p.Admitted {
		c.starts = append(c.starts, start{at, a.Name})
		admitted[a.Name] = true
		c.begin()
	}
	c.Candidates = slices.DeleteFunc(slices.Clone(c.Candidates), func(o departurecap.Candidate) bool { return admitted[o.Name] })
	return p
}

// begin starts the departure of a machine.
func (c *cluster) begin() {
	c.Active--
	c.departed = append(c.departed, c.Now)
	c.Started = append(departurecap.Recent(c.Started, c.Now), c.Now)
}

// run plans at the instants that the plans name, until there is none.
func (c *cluster) run() {
	for at := c.Now; !at.IsZero(); {
		at = c.wake(at).Next
	}
}

// batches returns the number of starts of each instant.
func (c *cluster) batches() []int {
	var sizes []int
	for i, s := range c.starts {
		if i > 0 && s.At.Equal(c.starts[i-1].At) {
			sizes[len(sizes)-1]++
			continue
		}
		sizes = append(sizes, 1)
	}
	return sizes
}

// names returns the candidates that started, in order.
func (c *cluster) names() []string {
	var names []string
	for _, s := range c.starts {
		names = append(names, s.Name)
	}
	return names
}

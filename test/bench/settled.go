// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// resync is the manager's resync interval during the measurement: a tenth of the default.
const resync = time.Minute

// stableStates are the stable states of a ScheduledMachine.
var stableStates = []struct {
	name   string
	phase  v1alpha1.Phase
	change func(*v1alpha1.ScheduledMachine)
}{
	{"active", v1alpha1.PhaseActive, nil},
	{"inactive", v1alpha1.PhaseInactive, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{closed()} }},
	{"disabled", v1alpha1.PhaseDisabled, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) }},
	{"terminated", v1alpha1.PhaseTerminated, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }},
}

// benchSettled counts requests in a quiet fleet.
func benchSettled(ctx context.Context, b *bench) error {
	return b.with(ctx, b.bin, []string{fmt.Sprintf("--sync-period=%v", resync)}, func(ctx context.Context, l *lab) error {
		f, err := l.follow(ctx)
		if err != nil {
			return err
		}
		if err := l.mixedFleet(ctx, f); err != nil {
			return err
		}
		if _, err := l.nodes.next(); err != nil {
			return err
		}
		l.note("everything is settled; looking for %v, with a resync every %v; load %s", l.settled, resync, load())
		if err := pause(ctx, l.settled); err != nil {
			return err
		}
		return l.countSettled()
	})
}

// closed is an hour that does not come during a benchmark.
func closed() string { return fmt.Sprint((clk.Now().UTC().Hour() + 12) % 24) }

// mixedFleet creates a fleet with all states, and waits until there are no more writes.
func (l *lab) mixedFleet(ctx context.Context, f *fleet) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience+time.Duration(l.fleet)*time.Second)
	defer cancel()
	for i, state := range stableStates {
		n := (l.fleet + i) / len(stableStates) // adds up to the fleet
		names, err := l.create(ctx, state.name, n, infrav1.PlaneMachineSpec{}, state.change)
		if err != nil {
			return err
		}
		if err := f.settle(ctx, names, state.phase); err != nil {
			return err
		}
	}
	return l.quiet(ctx, 10*time.Second)
}

// countSettled makes figures of the requests since the last call.
func (l *lab) countSettled() error {
	management, err := l.management.next()
	if err != nil {
		return err
	}
	nodes, err := l.nodes.next()
	if err != nil {
		return err
	}
	mine, core := tally(management, request.ours), tally(management, fromCore)
	there, coreThere := tally(nodes, request.ours), tally(nodes, fromCore)
	perHour := time.Hour.Hours() / l.settled.Hours()
	writes := one("writes of 5-Spot to both clusters", "writes", l.fleet, float64(mine.writes+there.writes))
	l.add(writes.goal("0", writes.Max == 0))
	for _, f := range []struct {
		what string
		n, c int
	}{
		{"reads of 5-Spot, management cluster", mine.reads, core.reads},
		{"watches of 5-Spot begun anew, management cluster", mine.watches, core.watches},
		{"reads of 5-Spot, workload cluster", there.reads, coreThere.reads},
		{"watches of 5-Spot begun anew, workload cluster", there.watches, coreThere.watches},
	} {
		unit := "per hour"
		l.add(one(f.what, unit, l.fleet, float64(f.n)*perHour).against("Cluster API core", one("", unit, 0, float64(f.c)*perHour)))
	}
	l.note("requests of 5-Spot: management %v, workload %v", mine.kinds, there.kinds)
	l.note("requests of Cluster API core: management %v, workload %v", core.kinds, coreThere.kinds)
	return nil
}

// fromCore reports whether Cluster API's core manager sent the request. In a workload cluster the user agent
// distinguishes it from 5-Spot.
func fromCore(q request) bool {
	return q.User.Username == "system:serviceaccount:plane-system:capi-core" || q.User.Username == "cluster-api" && !q.ours() && strings.Contains(q.UserAgent, "cluster-api")
}

// A count is the number of requests of each kind.
type count struct {
	writes, reads, watches int
	kinds                  map[string]int
}

func tally(requests []request, whose func(request) bool) count {
	c := count{kinds: map[string]int{}}
	for _, q := range requests {
		if !whose(q) {
			continue
		}
		c.kinds[q.outcome()]++
		switch {
		case q.isWrite():
			c.writes++
		case q.Verb == "watch":
			c.watches++
		default:
			c.reads++
		}
	}
	return c
}

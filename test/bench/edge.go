// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/manager"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

const (
	// goalEdge bounds how late the first write may be, p99 in milliseconds.
	goalEdge = 1000
	// lead is how long before an edge the manager restarts.
	lead = 30 * time.Second
	// back is the least by which the manager's clock is set back. It never runs ahead, because deadlines count from the
	// API server's timestamps.
	back = 3 * time.Hour
)

// An edgeBench opens and closes windows.
type edgeBench struct {
	*fleet

	// workers is the manager's concurrency for ScheduledMachines.
	workers int
	names   []string
	opens   time.Time
	// creates and deletes are how late the writes of a bare client are if all begin at once.
	creates, deletes figure
}

// benchEdge measures how long after a window's edge each of many ScheduledMachines gets its first write. The manager's
// clock is shifted, so that the edge comes when the fleet is settled; it runs at its real speed.
func benchEdge(ctx context.Context, b *bench) error {
	if _, err := b.build(ctx, "./bench/shifted", "manager"); err != nil {
		return err
	}
	opens := clk.Now().UTC().Truncate(time.Hour).Add(-back)
	workers, err := shippedWorkers()
	if err != nil {
		return err
	}
	far := clockOffset(opens.Add(-30*time.Minute), clk.Now())
	return b.with(ctx, b.dir, []string{far}, func(ctx context.Context, l *lab) error {
		f, err := l.follow(ctx)
		if err != nil {
			return err
		}
		e := &edgeBench{fleet: f, workers: workers, opens: opens}
		if err := e.measureLimits(ctx); err != nil {
			return fmt.Errorf("measuring the limit: %w", err)
		}
		if err := e.open(ctx); err != nil {
			return fmt.Errorf("opening: %w", err)
		}
		if err := e.close(ctx); err != nil {
			return fmt.Errorf("closing: %w", err)
		}
		return nil
	})
}

// shippedWorkers returns the manager's default concurrency for ScheduledMachines.
func shippedWorkers() (int, error) {
	shipped := manager.NewOptions().FlagSet("manager").Lookup("scheduledmachine-concurrency")
	return strconv.Atoi(shipped.DefValue)
}

// clockOffset is the argument with which the shifted manager's clock shows edge at the instant.
func clockOffset(edge, instant time.Time) string {
	return fmt.Sprintf("--clock-offset=%v", edge.Sub(instant))
}

// patient is a context for an action of the whole fleet.
func (e *edgeBench) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 2*patience+time.Duration(e.lab.machines)*1500*time.Millisecond)
}

// open creates the fleet, and opens its window.
func (e *edgeBench) open(ctx context.Context) (err error) {
	ctx, cancel := e.patient(ctx)
	defer cancel()
	l := e.lab
	e.names, err = l.create(ctx, "edge", l.machines, infrav1.PlaneMachineSpec{}, func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.Schedule.HoursOfDay = []string{fmt.Sprint(e.opens.Hour())}
	})
	if err != nil {
		return err
	}
	if err := e.settle(ctx, e.names, v1alpha1.PhaseInactive); err != nil {
		return err
	}
	l.note("%d ScheduledMachines are Inactive; load %s", len(e.names), load())
	edge, err := e.approach(ctx, e.opens)
	if err != nil {
		return err
	}
	if err := e.settle(ctx, e.names, v1alpha1.PhaseActive); err != nil {
		return err
	}
	took := clk.Now().Sub(edge)
	requests, err := l.management.next()
	if err != nil {
		return err
	}
	if err := e.judge("opens", requests, edge, e.creates); err != nil {
		return err
	}
	l.add(spread("opens: edge → Machine created", e.lateness(requests, edge, "machines", done)))
	l.add(one("opens: edge → all Active and Ready", "s", len(e.names), took.Seconds()))
	return nil
}

// close closes the window of a running fleet.
func (e *edgeBench) close(ctx context.Context) error {
	ctx, cancel := e.patient(ctx)
	defer cancel()
	edge, err := e.approach(ctx, e.opens.Add(time.Hour))
	if err != nil {
		return err
	}
	if err := e.settle(ctx, e.names, v1alpha1.PhaseInactive); err != nil {
		return err
	}
	took := clk.Now().Sub(edge)
	requests, err := e.lab.management.next()
	if err != nil {
		return err
	}
	if err := e.judge("closes", requests, edge, e.deletes); err != nil {
		return err
	}
	e.lab.add(one("closes: edge → all Inactive", "s", len(e.names), took.Seconds()))
	return nil
}

// approach restarts the manager with a clock that reaches edge in a moment, and waits until everything is quiet. It
// returns the instant of the edge on the real clock.
func (e *edgeBench) approach(ctx context.Context, edge time.Time) (time.Time, error) {
	m := e.lab.Manager
	if err := e.lab.quiet(ctx, 3*time.Second); err != nil {
		return time.Time{}, err
	}
	if err := m.Stop(); err != nil {
		return time.Time{}, err
	}
	instant := clk.Now().Add(e.lead())
	m.AddArgs(clockOffset(edge, instant))
	if err := m.Start(ctx); err != nil {
		return time.Time{}, err
	}
	if err := pause(ctx, instant.Sub(clk.Now())-time.Second); err != nil {
		return time.Time{}, err
	}
	before, err := e.lab.management.next()
	if err != nil {
		return time.Time{}, err
	}
	for _, q := range before {
		if q.ours() && q.lifecycle() && clk.Now().Sub(q.StageTimestamp) < 2*time.Second {
			return time.Time{}, errors.New("the manager was still busy when the edge came: " + q.what())
		}
	}
	e.lab.note("edge in a second; load %s", load())
	return instant, nil
}

// lead is the time in which the manager can reconcile the whole fleet.
func (e *edgeBench) lead() time.Duration {
	return lead + time.Duration(len(e.names))*10*time.Millisecond
}

// judge makes a figure of the first writes.
func (e *edgeBench) judge(what string, requests []request, edge time.Time, limit figure) error {
	late := e.lateness(requests, edge, "", done)
	if len(late) != len(e.names) {
		return fmt.Errorf("%d of %d ScheduledMachines were written to after the edge", len(late), len(e.names))
	}
	f := spread(what+": edge → first write", late)
	e.lab.add(f.against("limit", limit).goal(fmt.Sprintf("p99 < %d", goalEdge), f.P99 < goalEdge))
	e.lab.add(spread(what+": edge → first write received", e.lateness(requests, edge, "", received)))
	counts := map[string]int{}
	ours := 0
	for _, q := range requests {
		if q.ours() && !q.StageTimestamp.Before(edge) {
			counts[q.outcome()]++
			ours++
		}
	}
	e.lab.add(one(what+": requests of the manager, each", "requests", len(e.names), float64(ours)/float64(len(e.names))))
	e.lab.note("%s: requests of the manager: %v", what, counts)
	return e.early(requests, edge)
}

// early returns an error if there are writes before the edge.
func (e *edgeBench) early(requests []request, edge time.Time) error {
	for _, q := range requests {
		if q.ours() && q.lifecycle() && q.StageTimestamp.Before(edge) {
			return fmt.Errorf("%s %s came %v before the edge", q.what(), q.ObjectRef.Name, edge.Sub(q.StageTimestamp))
		}
	}
	return nil
}

// done is when a request was finished. received is when it arrived at the API server, where it may wait if there are a
// thousand at once.
func done(q request) time.Time     { return q.StageTimestamp }
func received(q request) time.Time { return q.RequestReceivedTimestamp }

// lateness returns, for each ScheduledMachine, how long after the edge the manager's first write to it or to a child
// was done or received. resource may be empty.
func (e *edgeBench) lateness(requests []request, edge time.Time, resource string, at func(request) time.Time) []time.Duration {
	first := map[string]time.Duration{}
	for _, q := range requests {
		if !q.ours() || !q.isWrite() || q.isEvent() || !q.accepted() || resource != "" && q.ObjectRef.Resource != resource {
			continue
		}
		name := q.ObjectRef.Name
		for _, suffix := range []string{"-bootstrap", "-infra", "-machine"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if late := at(q).Sub(edge); late >= 0 && (first[name] == 0 || late < first[name]) {
			first[name] = late
		}
	}
	out := make([]time.Duration, 0, len(first))
	for _, name := range e.names {
		if late, ok := first[name]; ok {
			out = append(out, late)
		}
	}
	return out
}

// measureLimits creates and deletes as many objects as the fleet has with a bare client. It has as many workers as the
// manager, and no controller reacts.
func (e *edgeBench) measureLimits(ctx context.Context) (err error) {
	c := e.lab.Management.Client
	object := func(name string) client.Object {
		return &bootstrapv1.PlaneConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	e.creates, err = e.bareWrites("limit: a bare client creates as many objects", func(name string) error {
		return c.Create(ctx, object(name))
	})
	if err != nil {
		return err
	}
	e.lab.add(e.creates)
	e.deletes, err = e.bareWrites("limit: a bare client deletes as many objects", func(name string) error {
		return c.Delete(ctx, object(name))
	})
	e.lab.add(e.deletes)
	return err
}

// bareWrites returns how long after a common start each write was done.
func (e *edgeBench) bareWrites(what string, write func(string) error) (figure, error) {
	var mu sync.Mutex
	var late []time.Duration
	start := clk.Now()
	err := each(numbered("bare", e.lab.machines), e.workers, func(name string) error {
		err := write(name)
		mu.Lock()
		defer mu.Unlock()
		late = append(late, clk.Now().Sub(start))
		return err
	})
	return spread(what, late), err
}

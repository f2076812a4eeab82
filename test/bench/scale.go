// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// A contender creates and removes machines. up and down only start that.
type contender struct {
	name     string
	prepare  func(context.Context) error
	up, down func(context.Context) error
	// after checks, once the machines are there or gone, that the contender reports so.
	after func(ctx context.Context, up bool) error
}

// warmUp exceeds the time for which a manager plans before the first machine of a Cluster may leave.
const warmUp = 11 * time.Second

// A cycle is a life cycle of n machines.
type cycle struct {
	up, down           time.Duration
	total, mine, reads int
	// status, events and refused count kinds of our writes: to a status, Events, and refused ones.
	status, events, refused int
}

// benchScale starts and removes machines in three ways, one after the other.
func benchScale(ctx context.Context, b *bench) error {
	return b.with(ctx, b.bin, nil, func(ctx context.Context, l *lab) error {
		f, err := l.follow(ctx)
		if err != nil {
			return err
		}
		var cycles []cycle
		contenders := []contender{l.bareLoop(f), l.machineDeployment(), l.scheduledMachines(f)}
		for _, c := range contenders {
			result, err := l.cycle(ctx, f, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			cycles = append(cycles, result)
		}
		bare, deployment, mine := cycles[0], cycles[1], cycles[2]
		n := float64(l.scale)
		for _, m := range []struct {
			what, unit string
			of         func(cycle) float64
		}{
			{"all Machines ready", "s", func(c cycle) float64 { return c.up.Seconds() }},
			{"all Machines gone", "s", func(c cycle) float64 { return c.down.Seconds() }},
			{"requests of all controllers, each life cycle", "requests", func(c cycle) float64 { return float64(c.total) / n }},
		} {
			fig := func(c cycle, name string) figure { return one(m.what+": "+name, m.unit, l.scale, m.of(c)) }
			limit := fig(bare, "bare loop (limit)")
			l.add(fig(mine, "5-Spot").against("MachineDeployment", fig(deployment, "")))
			l.add(fig(deployment, "MachineDeployment").against("bare loop", limit))
			l.add(limit)
		}
		for _, c := range []struct {
			what  string
			count int
		}{
			{"writes of 5-Spot", mine.mine - mine.reads},
			{"of them to a status", mine.status},
			{"of them Events", mine.events},
			{"of them refused", mine.refused},
			{"reads of 5-Spot", mine.reads},
		} {
			l.add(one(c.what+", each life cycle", "requests", l.scale, float64(c.count)/n))
		}
		return nil
	})
}

// cycle runs one contender.
func (l *lab) cycle(ctx context.Context, f *fleet, c contender) (out cycle, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience+time.Duration(l.scale)*4*time.Second)
	defer cancel()
	if err := c.prepare(ctx); err != nil {
		return out, err
	}
	if err := l.quiet(ctx, 3*time.Second); err != nil {
		return out, err
	}
	l.note("%s; load %s", c.name, load())
	begin := clk.Now()
	if err := c.up(ctx); err != nil {
		return out, err
	}
	if err := f.until(ctx, func() error { return f.ready(l.scale) }); err != nil {
		return out, err
	}
	out.up = clk.Now().Sub(begin)
	if err := c.after(ctx, true); err != nil {
		return out, err
	}
	if err := pause(ctx, warmUp); err != nil {
		return out, err
	}
	begin = clk.Now()
	if err := c.down(ctx); err != nil {
		return out, err
	}
	if err := f.until(ctx, f.empty); err != nil {
		return out, err
	}
	out.down = clk.Now().Sub(begin)
	if err := c.after(ctx, false); err != nil {
		return out, err
	}
	return out, l.countCycle(&out)
}

// countCycle counts the requests since everything was quiet, without bench's own.
func (l *lab) countCycle(out *cycle) error {
	requests, err := l.management.next()
	if err != nil {
		return err
	}
	kinds := map[string]int{}
	for _, q := range requests {
		if q.User.Username == adminName || q.Verb == "watch" {
			continue
		}
		out.total++
		if !q.ours() {
			continue
		}
		out.mine++
		kinds[q.outcome()]++
		out.count(q)
	}
	if out.mine > 0 {
		l.note("requests of 5-Spot: %v", kinds)
	}
	return nil
}

// count counts a request of ours by its kind.
func (c *cycle) count(q request) {
	switch {
	case !q.isWrite():
		c.reads++
		return
	case q.isEvent():
		c.events++
	case q.ObjectRef.Subresource == "status":
		c.status++
	}
	if !q.accepted() {
		c.refused++
	}
}

// adminName is the user of bench.
const adminName = "plane-admin"

func (f *fleet) ready(n int) error {
	found := 0
	for _, m := range f.machines {
		if conditions.IsTrue(m, clusterv1.ReadyCondition) && m.Status.NodeRef.IsDefined() {
			found++
		}
	}
	if found != n {
		return fmt.Errorf("%d of %d Machines are ready", found, n)
	}
	return nil
}

func (f *fleet) empty() error {
	if len(f.machines) > 0 {
		return fmt.Errorf("%d Machines are there", len(f.machines))
	}
	return nil
}

func nothing(context.Context) error            { return nil }
func nothingAfter(context.Context, bool) error { return nil }

// scheduledMachines opens and closes a window.
func (l *lab) scheduledMachines(f *fleet) contender {
	var names []string
	return contender{
		name: "5-Spot",
		prepare: func(ctx context.Context) (err error) {
			names, err = l.create(ctx, "scale", l.scale, infrav1.PlaneMachineSpec{}, func(sm *v1alpha1.ScheduledMachine) {
				sm.Spec.Schedule.HoursOfDay = []string{closed()}
			})
			if err != nil {
				return err
			}
			return f.settle(ctx, names, v1alpha1.PhaseInactive)
		},
		up: func(ctx context.Context) error {
			return l.patch(ctx, names, `{"spec":{"schedule":{"hoursOfDay":["0-23"]}}}`)
		},
		down: func(ctx context.Context) error {
			return l.patch(ctx, names, fmt.Sprintf(`{"spec":{"schedule":{"hoursOfDay":[%q]}}}`, closed()))
		},
		after: func(ctx context.Context, up bool) error {
			if up {
				return f.settle(ctx, names, v1alpha1.PhaseActive)
			}
			return f.settle(ctx, names, v1alpha1.PhaseInactive)
		},
	}
}

// bareLoop makes and deletes the same three objects.
func (l *lab) bareLoop(f *fleet) contender {
	names := numbered("bare", l.scale)
	return contender{
		name: "bare loop", prepare: nothing, after: nothingAfter,
		up: func(ctx context.Context) error {
			return each(names, writers, func(name string) error {
				_, err := l.NewMachine(ctx, l.workload, name, nil)
				return err
			})
		},
		down: func(ctx context.Context) error {
			return each(names, writers, func(name string) error {
				f.mu.Lock()
				m := f.machines[name].DeepCopy()
				f.mu.Unlock()
				return l.Management.Client.Delete(ctx, m)
			})
		},
	}
}

// machineDeployment scales a MachineDeployment from zero and back.
func (l *lab) machineDeployment() contender {
	scaleTo := func(n int) func(context.Context) error {
		return func(ctx context.Context) error {
			md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scale"}}
			return l.Management.Client.Patch(ctx, md, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
		}
	}
	return contender{
		name: "MachineDeployment", after: nothingAfter, up: scaleTo(l.scale), down: scaleTo(0),
		prepare: func(ctx context.Context) error {
			meta := metav1.ObjectMeta{Namespace: namespace, Name: "scale"}
			for _, obj := range []client.Object{
				&bootstrapv1.PlaneConfigTemplate{ObjectMeta: meta}, &infrav1.PlaneMachineTemplate{ObjectMeta: meta}, l.deployment(meta),
			} {
				if err := l.Management.Client.Create(ctx, obj); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (l *lab) deployment(meta metav1.ObjectMeta) *clusterv1.MachineDeployment {
	labels := map[string]string{strings.ToLower(meta.Name): ""}
	return &clusterv1.MachineDeployment{ObjectMeta: meta, Spec: clusterv1.MachineDeploymentSpec{
		ClusterName: clusterName, Replicas: new(int32(0)), Selector: metav1.LabelSelector{MatchLabels: labels},
		Template: clusterv1.MachineTemplateSpec{
			ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
			Spec: clusterv1.MachineSpec{
				ClusterName: clusterName, Version: plane.Version,
				Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PlaneConfigTemplate", Name: meta.Name,
				}},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: infrav1.GroupVersion.Group, Kind: "PlaneMachineTemplate", Name: meta.Name,
				},
			},
		},
	}}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// crowdRuns bounds the reclaims of each situation: each takes seconds.
	crowdRuns = 50
	// drainRuns bounds the reclaims during a drain, which Cluster API retries only after 20 s.
	drainRuns = 15
	// goalBehind bounds how much slower a reclaim is behind many drains. goalFairness bounds how much slower the
	// slowest of many concurrent ones is than the median.
	goalBehind, goalFairness = 1.5, 2
	// goalAtOnce is when the last of many concurrent reclaims must have started, in milliseconds.
	goalAtOnce = 15_000
	// askers is how many Nodes make a request at the same instant.
	askers = 64
	// trickle allows one machine to start to leave within 10 s.
	trickle = "--departure-cap-fraction=0.00001"

	// pods is the namespace of pods in the workload cluster.
	pods = metav1.NamespaceDefault

	// turnOn is a patch with a window that is always open.
	turnOn = `{"spec":{"schedule":{"enabled":true,"hoursOfDay":["0-23"]}}}`
)

// pinned are the labels of pods that cannot be evicted.
var pinned = map[string]string{"app": "pinned"}

// benchCrowd measures reclaims while many other machines leave. It measures on a quiet plane, during the machine's own
// drain, behind the drains of many, behind many more that the departure cap defers, and many at once.
func benchCrowd(ctx context.Context, b *bench) error {
	return b.withReclaims(ctx, func(ctx context.Context, r *reclaimBench) error {
		runs := min(r.lab.runs, crowdRuns)
		if err := r.prepare(ctx, runs); err != nil {
			return err
		}
		crowd, kept, err := r.gather(ctx)
		if err != nil {
			return fmt.Errorf("gathering %d machines: %w", r.lab.crowd+r.lab.deferred, err)
		}
		idle, err := r.alone(ctx, runs)
		if err != nil {
			return err
		}
		if err := r.behindAll(ctx, runs, crowd, kept, idle); err != nil {
			return err
		}
		return r.atOnce(ctx, crowd)
	})
}

// alone measures reclaims while no other machine leaves, and returns their duration.
func (r *reclaimBench) alone(ctx context.Context, n int) (idle figure, err error) {
	quiet, err := r.repeat(ctx, n, r.once)
	if err != nil {
		return figure{}, err
	}
	freed := spread("idle: exec → infrastructure deleted", pick(quiet, toFreed))
	idle = r.lab.judge("idle", quiet)
	r.lab.add(idle)
	r.lab.add(freed)
	drained, err := r.repeat(ctx, min(n, drainRuns), r.midDrain)
	if err != nil {
		return figure{}, fmt.Errorf("reclaiming mid-drain: %w", err)
	}
	r.lab.add(spread("mid-drain: exec → infrastructure deleted", pick(drained, toFreed)).against("idle", freed))
	return idle, nil
}

// behindAll measures reclaims while the crowd is drained, and then while the departure cap also defers the others.
func (r *reclaimBench) behindAll(ctx context.Context, n int, crowd, kept []string, idle figure) error {
	if err := r.drain(ctx, crowd); err != nil {
		return fmt.Errorf("draining %d machines: %w", len(crowd), err)
	}
	if err := r.behind(ctx, n, fmt.Sprintf("%d drains", len(crowd)), idle); err != nil {
		return err
	}
	if err := r.keep(ctx, kept); err != nil {
		return fmt.Errorf("keeping %d machines: %w", len(kept), err)
	}
	if err := r.behind(ctx, n, fmt.Sprintf("%d drains and %d deferred", len(crowd), len(kept)), idle); err != nil {
		return err
	}
	if err := r.release(ctx, kept); err != nil {
		return fmt.Errorf("having %d machines stay: %w", len(kept), err)
	}
	return nil
}

// behind measures reclaims while other machines leave.
func (r *reclaimBench) behind(ctx context.Context, n int, others string, idle figure) error {
	r.busy = true
	defer func() { r.busy = false }()
	runs, err := r.repeat(ctx, n, r.once)
	if err != nil {
		return fmt.Errorf("reclaiming behind %s: %w", others, err)
	}
	f := spread(fmt.Sprintf("behind %s: exec → Machine deleted", others), pick(runs, total)).against("idle", idle)
	r.lab.add(f.goal(fmt.Sprintf("≤ %v × idle", goalBehind), f.within(goalBehind)))
	return nil
}

// repeat reclaims machines one at a time, with a netlink agent.
func (r *reclaimBench) repeat(ctx context.Context, n int, once func(context.Context, string) (reclaimed, error)) ([]reclaimed, error) {
	var runs []reclaimed
	for range n {
		run, err := once(ctx, "netlink")
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	r.lab.note("%d runs; load %s", n, load())
	return runs, nil
}

// toFreed is the time until the deletion of the infrastructure.
func toFreed(r reclaimed) time.Duration { return r.freed.Sub(r.exec) }

// gather starts the other machines: the ones that will be drained, each with a pod that cannot be evicted, and the ones
// that the departure cap will defer.
func (r *reclaimBench) gather(ctx context.Context) (crowd, kept []string, err error) {
	ctx, cancel := r.patient(ctx)
	defer cancel()
	patient := func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.GracefulShutdownTimeout, sm.Spec.NodeDrainTimeout = "2h", "2h"
	}
	if crowd, err = r.lab.create(ctx, "crowd", r.lab.crowd, infrav1.PlaneMachineSpec{}, patient); err != nil {
		return nil, nil, err
	}
	if kept, err = r.lab.create(ctx, "kept", r.lab.deferred, infrav1.PlaneMachineSpec{}, patient); err != nil {
		return nil, nil, err
	}
	if err := r.lab.workload.Client.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pods, Name: "pinned"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(math.MaxInt32)), Selector: &metav1.LabelSelector{MatchLabels: pinned}},
	}); err != nil {
		return nil, nil, err
	}
	if err := r.settle(ctx, slices.Concat(crowd, kept), v1alpha1.PhaseActive); err != nil {
		return nil, nil, err
	}
	if err := each(crowd, writers, func(name string) error { return r.pin(ctx, name) }); err != nil {
		return nil, nil, err
	}
	return crowd, kept, r.lab.quiet(ctx, 3*time.Second)
}

func (r *reclaimBench) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 2*patience+time.Duration(r.lab.crowd+r.lab.deferred)*1500*time.Millisecond)
}

// pin runs a pod on the Node of a machine.
func (r *reclaimBench) pin(ctx context.Context, name string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pods, Name: "on-" + name, Labels: pinned},
		Spec:       corev1.PodSpec{NodeName: machineOf(name), Containers: []corev1.Container{{Name: "main", Image: "work:1"}}},
	}
	if err := r.lab.workload.Client.Create(ctx, pod); err != nil {
		return err
	}
	return r.lab.workload.Wait(ctx, pod, func() error {
		if pod.Status.Phase != corev1.PodRunning { // A pod that does not run may be evicted.
			return errors.New("it does not run")
		}
		return nil
	})
}

// midDrain reclaims the next machine while its own drain waits for a pod.
func (r *reclaimBench) midDrain(ctx context.Context, detector string) (reclaimed, error) {
	name, err := r.next(ctx)
	if err != nil {
		return reclaimed{}, err
	}
	if err := r.pin(ctx, name); err != nil {
		return reclaimed{}, err
	}
	if err := r.drain(ctx, []string{name}); err != nil {
		return reclaimed{}, err
	}
	run, err := r.reclaim(ctx, name, detector)
	if err != nil {
		return run, err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pods, Name: "on-" + name}}
	return run, client.IgnoreNotFound(r.lab.workload.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
}

// drain closes windows, and waits until every Machine is being drained.
func (r *reclaimBench) drain(ctx context.Context, names []string) error {
	ctx, cancel := r.patient(ctx)
	defer cancel()
	if err := r.lab.patch(ctx, names, elsewhen()); err != nil {
		return err
	}
	return r.until(ctx, func() error {
		for _, name := range names {
			m := r.machines[machineOf(name)]
			if m == nil || m.Status.Deletion == nil || m.Status.Deletion.NodeDrainStartTime.IsZero() {
				return fmt.Errorf("the Machine of %s is not being drained", name)
			}
		}
		return nil
	})
}

// elsewhen is a patch that closes the open window.
func elsewhen() string {
	return fmt.Sprintf(`{"spec":{"schedule":{"hoursOfDay":["%d"]}}}`, (clk.Now().UTC().Hour()+12)%24)
}

// keep closes windows under a departure cap of one machine. It waits until the status of all machines that have not
// begun to leave shows that they are deferred.
func (r *reclaimBench) keep(ctx context.Context, names []string) error {
	ctx, cancel := r.patient(ctx)
	defer cancel()
	if err := errors.Join(r.restart(ctx, trickle), r.lab.patch(ctx, names, elsewhen())); err != nil {
		return err
	}
	return r.until(ctx, func() error {
		for _, name := range names {
			gated := meta.FindStatusCondition(r.scheduled[name].Status.Conditions, v1alpha1.DepartureGatedCondition)
			kept := gated != nil && gated.Status == metav1.ConditionTrue && gated.Reason == v1alpha1.BlastRadiusCapReason
			m := r.machines[machineOf(name)]
			if leaves := m == nil || !m.DeletionTimestamp.IsZero(); !kept && !leaves {
				return fmt.Errorf("ScheduledMachine %s is not kept", name)
			}
		}
		return nil
	})
}

// release opens the windows of deferred machines, and lifts the cap.
func (r *reclaimBench) release(ctx context.Context, names []string) error {
	ctx, cancel := r.patient(ctx)
	defer cancel()
	return errors.Join(
		r.lab.patch(ctx, names, turnOn),
		r.settle(ctx, names, v1alpha1.PhaseActive),
		r.restart(ctx, system.Unlimited...),
	)
}

// restart restarts the manager with more arguments, which override earlier ones.
func (r *reclaimBench) restart(ctx context.Context, args ...string) error {
	r.lab.Manager.AddArgs(args...)
	return errors.Join(r.lab.Manager.Stop(), r.lab.Manager.Start(ctx))
}

// atOnce waits until the crowd runs again, and then writes a request on all their Nodes at once. The durations come
// from the API servers' audit logs.
func (r *reclaimBench) atOnce(ctx context.Context, names []string) error {
	ctx, cancel := r.patient(ctx)
	defer cancel()
	c := r.lab.workload.Client
	err := errors.Join(
		c.DeleteAllOf(ctx, &policyv1.PodDisruptionBudget{}, client.InNamespace(pods)),
		c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(pods), client.GracePeriodSeconds(0)),
		r.settle(ctx, names, v1alpha1.PhaseInactive),
		r.lab.patch(ctx, names, turnOn),
		r.settle(ctx, names, v1alpha1.PhaseActive),
		r.lab.quiet(ctx, 3*time.Second),
	)
	if err != nil {
		return fmt.Errorf("bringing %d machines back: %w", len(names), err)
	}
	if _, err := r.lab.nodes.next(); err != nil {
		return err
	}
	r.lab.note("%d Nodes ask at once; load %s", len(names), load())
	if err := each(names, askers, func(name string) error { return r.annotate(ctx, name) }); err != nil {
		return err
	}
	if err := r.settle(ctx, names, v1alpha1.PhaseDisabled); err != nil {
		return err
	}
	nodes, err := r.lab.nodes.next()
	if err != nil {
		return err
	}
	requests, err := r.lab.management.next()
	if err != nil {
		return err
	}
	var took []time.Duration
	for _, name := range names {
		took = append(took, first(requests, "delete machines", machineOf(name)).Sub(first(nodes, "patch nodes", machineOf(name))))
	}
	f := spread(fmt.Sprintf("%d at once: Node annotated → Machine deleted", len(names)), took)
	fair := f.Max <= goalFairness*f.P50
	r.lab.add(f.goal(fmt.Sprintf("≤ %d, and ≤ %d × the median", goalAtOnce, goalFairness), f.Max <= goalAtOnce && fair))
	return nil
}

// annotate annotates a Node as its agent does.
func (r *reclaimBench) annotate(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machineOf(name)}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q,%q:%q}}}`, reclaim.RequestedAnnotation, reclaim.RequestedValue,
		reclaim.ReasonAnnotation, reclaim.Reason("bench"), reclaim.RequestedAtAnnotation, clk.Now().UTC().Format(time.RFC3339))
	return r.lab.workload.Client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

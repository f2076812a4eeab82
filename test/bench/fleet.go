// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// writers is how many objects are written in parallel. More would only queue.
const writers = 8

// A fleet follows ScheduledMachines and Machines of the lab by watches.
type fleet struct {
	lab     *lab
	changed chan struct{}

	mu        sync.Mutex
	scheduled map[string]*v1alpha1.ScheduledMachine
	machines  map[string]*clusterv1.Machine
	// leaving is when a watch first showed that a Machine is being deleted.
	leaving map[string]time.Time
}

// follow watches until ctx ends.
func (l *lab) follow(ctx context.Context) (*fleet, error) {
	f := &fleet{
		lab: l, changed: make(chan struct{}, 1),
		scheduled: map[string]*v1alpha1.ScheduledMachine{}, machines: map[string]*clusterv1.Machine{}, leaving: map[string]time.Time{},
	}
	c, err := cache.New(l.Management.Admin.Config, cache.Options{
		Scheme: plane.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}},
	})
	if err != nil {
		return nil, err
	}
	for _, obj := range []client.Object{&v1alpha1.ScheduledMachine{}, &clusterv1.Machine{}} {
		informer, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: f.see, UpdateFunc: func(_, obj any) { f.see(obj) }, DeleteFunc: f.forget,
		}); err != nil {
			return nil, err
		}
	}
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		return nil, ctx.Err()
	}
	return f, nil
}

func (f *fleet) see(obj any) {
	now := clk.Now()
	f.mu.Lock()
	switch o := obj.(type) {
	case *v1alpha1.ScheduledMachine:
		f.scheduled[o.Name] = o
	case *clusterv1.Machine:
		f.machines[o.Name] = o
		if _, known := f.leaving[o.Name]; !known && !o.DeletionTimestamp.IsZero() {
			f.leaving[o.Name] = now
		}
	}
	f.mu.Unlock()
	f.tell()
}

func (f *fleet) forget(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	f.mu.Lock()
	switch o := obj.(type) {
	case *v1alpha1.ScheduledMachine:
		delete(f.scheduled, o.Name)
	case *clusterv1.Machine:
		delete(f.machines, o.Name)
		delete(f.leaving, o.Name)
	}
	f.mu.Unlock()
	f.tell()
}

func (f *fleet) tell() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// until waits until cond, which runs under the lock, returns nil.
func (f *fleet) until(ctx context.Context, cond func() error) error {
	for {
		f.mu.Lock()
		err := cond()
		f.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// settle waits until all names are in a phase, and Ready.
func (f *fleet) settle(ctx context.Context, names []string, phase v1alpha1.Phase) error {
	return f.until(ctx, func() error {
		for _, name := range names {
			if err := inPhase(f.scheduled[name], phase); err != nil {
				return fmt.Errorf("ScheduledMachine %s: %w", name, err)
			}
		}
		return nil
	})
}

func inPhase(sm *v1alpha1.ScheduledMachine, phase v1alpha1.Phase) error {
	if sm == nil {
		return errors.New("it does not exist")
	}
	if sm.Status.Phase != phase || sm.Status.ObservedGeneration != sm.Generation {
		return fmt.Errorf("its phase is %q, not %s: %s", sm.Status.Phase, phase, sm.Status.Message)
	}
	for _, c := range sm.Status.Conditions {
		if c.Type == v1alpha1.ReadyCondition && c.Status == metav1.ConditionTrue {
			return nil
		}
	}
	return errors.New("it is not Ready")
}

// create creates n ScheduledMachines, each modified by change, and returns their names.
func (l *lab) create(ctx context.Context, prefix string, n int, infra infrav1.PlaneMachineSpec, change func(*v1alpha1.ScheduledMachine)) ([]string, error) {
	names := numbered(prefix, n)
	return names, each(names, writers, func(name string) error {
		sm := system.ScheduledMachine(l.workload, name, infra)
		if change != nil {
			change(sm)
		}
		return l.Management.Client.Create(ctx, sm)
	})
}

// patch sends the same merge patch to all names.
func (l *lab) patch(ctx context.Context, names []string, patch string) error {
	return each(names, writers, func(name string) error {
		sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return l.Management.Client.Patch(ctx, sm, client.RawPatch("application/merge-patch+json", []byte(patch)))
	})
}

// numbered returns n names with a common prefix.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return names
}

// each calls f for every name, with that many workers, and returns the first error of each worker.
func each(names []string, workers int, f func(string) error) error {
	work, errs := make(chan string), make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for name := range work {
				if errs[i] == nil {
					errs[i] = f(name)
				}
			}
		})
	}
	for _, name := range names {
		work <- name
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

// machineOf is the name of a ScheduledMachine's Machine.
func machineOf(scheduled string) string { return scheduled + "-machine" }

// quiet waits until the manager has sent no request for a while.
func (l *lab) quiet(ctx context.Context, while time.Duration) error {
	last := clk.Now()
	if _, err := l.management.next(); err != nil {
		return err
	}
	return plane.Until(ctx, func(context.Context) error {
		requests, err := l.management.next()
		if err != nil {
			return err
		}
		for _, q := range requests {
			if q.isWrite() {
				last = clk.Now()
			}
		}
		if still := clk.Now().Sub(last); still < while {
			return fmt.Errorf("something was written %v ago", still)
		}
		return nil
	})
}

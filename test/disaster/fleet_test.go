// SPDX-License-Identifier: Apache-2.0

package disaster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// namespace is the namespace of the Cluster, which has the same name.
const namespace = "lab"

// A fleet holds the state of all objects, from watches.
type fleet struct {
	mu        sync.Mutex
	scheduled map[string]*v1alpha1.ScheduledMachine
	machines  map[string]*clusterv1.Machine
	infra     map[string]*infrav1.PlaneMachine
	// starts are the departures that have begun since the start of the disaster, by Machine.
	starts map[types.UID]start
	// signals are the new reasons of conditions and Events since then, with the time of the first of each.
	signals map[string]signal
}

// A start is the start of a departure.
type start struct {
	name   string // of the ScheduledMachine
	at     time.Time
	exempt bool
}

// A signal is a condition or Event that people can see.
type signal struct {
	at time.Time
	// started is the number of departures in a lane other than exempt that had begun by then.
	started int
}

// follow watches until ctx ends.
func follow(ctx context.Context) (*fleet, error) {
	f := &fleet{
		scheduled: map[string]*v1alpha1.ScheduledMachine{}, machines: map[string]*clusterv1.Machine{}, infra: map[string]*infrav1.PlaneMachine{},
	}
	f.begin()
	c, err := cache.New(shared.Management.Admin.Config, cache.Options{
		Scheme: plane.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}},
	})
	if err != nil {
		return nil, err
	}
	for _, obj := range []client.Object{&v1alpha1.ScheduledMachine{}, &clusterv1.Machine{}, &infrav1.PlaneMachine{}, &eventsv1.Event{}} {
		informer, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { f.see(nil, obj) }, UpdateFunc: f.see, DeleteFunc: f.forget,
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

// begin resets the observations before a disaster.
func (f *fleet) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts, f.signals = map[types.UID]start{}, map[string]signal{}
}

func (f *fleet) see(before, obj any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o := obj.(type) {
	case *v1alpha1.ScheduledMachine:
		f.scheduled[o.Name] = o
		was, _ := before.(*v1alpha1.ScheduledMachine)
		f.seeConditions(was, o)
	case *clusterv1.Machine:
		f.machines[o.Name] = o
		f.seeStart(o)
	case *infrav1.PlaneMachine:
		f.infra[o.Name] = o
	case *eventsv1.Event:
		f.shown(o.Reason)
	}
}

func (f *fleet) forget(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o := obj.(type) {
	case *v1alpha1.ScheduledMachine:
		delete(f.scheduled, o.Name)
	case *clusterv1.Machine:
		delete(f.machines, o.Name)
	case *infrav1.PlaneMachine:
		delete(f.infra, o.Name)
	}
}

// seeConditions records new reasons.
func (f *fleet) seeConditions(was, is *v1alpha1.ScheduledMachine) {
	known := map[string]bool{}
	if was != nil {
		for _, c := range was.Status.Conditions {
			known[c.Type+c.Reason] = true
		}
	}
	for _, c := range is.Status.Conditions {
		if !known[c.Type+c.Reason] {
			f.shown(c.Reason)
		}
	}
}

func (f *fleet) shown(reason string) {
	if _, before := f.signals[reason]; !before {
		f.signals[reason] = signal{time.Now(), f.waited()}
	}
}

// waited returns the number of departures that have begun, without exempt ones.
func (f *fleet) waited() (n int) {
	for _, s := range f.starts {
		if !s.exempt {
			n++
		}
	}
	return n
}

// seeStart records a departure once it is admitted.
func (f *fleet) seeStart(m *clusterv1.Machine) {
	text, leaves := m.Annotations[v1alpha1.DepartureAnnotation]
	if _, before := f.starts[m.UID]; !leaves || before {
		return
	}
	var record struct {
		Lane  string    `json:"lane"`
		Since time.Time `json:"since"`
	}
	if json.Unmarshal([]byte(text), &record) != nil || record.Since.IsZero() {
		return // It is only requested.
	}
	f.starts[m.UID] = start{m.Labels[v1alpha1.ScheduledMachineLabel], time.Now(), record.Lane == "exempt"}
}

// has returns the error of cond, which runs under the lock.
func (f *fleet) has(cond func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cond()
}

// left returns the ScheduledMachines whose machine has begun to leave.
func (f *fleet) left() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := map[string]bool{}
	for _, s := range f.starts {
		left[s.name] = true
	}
	return left
}

// startsAfter returns the departures that have begun after an instant, without exempt ones.
func (f *fleet) startsAfter(t time.Time) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.starts {
		if !s.exempt && s.at.After(t) {
			names = append(names, fmt.Sprintf("%s at %s", s.name, s.at.Format(time.TimeOnly)))
		}
	}
	return names
}

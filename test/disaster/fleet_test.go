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

// namespace is that of the Cluster, which has the same name.
const namespace = "lab"

// A fleet follows what there is by watches.
type fleet struct {
	mu        sync.Mutex
	scheduled map[string]*v1alpha1.ScheduledMachine
	machines  map[string]*clusterv1.Machine
	infra     map[string]*infrav1.PlaneMachine
	// starts are the departures that have begun since the disaster did, by Machine.
	starts map[types.UID]start
	// signals are the reasons of conditions and Events since then, and when each was seen first.
	signals map[string]signal
}

// A start is that of a departure.
type start struct {
	name   string // of the ScheduledMachine
	at     time.Time
	exempt bool
}

// A signal is what people see.
type signal struct {
	at time.Time
	// started is how many departures that can wait had begun by then.
	started int
}

// follow begins to watch, until ctx ends.
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

// begin forgets what was seen before a disaster.
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

// seeConditions notes reasons that are new.
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

// waited is how many departures have begun that can wait.
func (f *fleet) waited() (n int) {
	for _, s := range f.starts {
		if !s.exempt {
			n++
		}
	}
	return n
}

// seeStart notes that a Machine has it on record why it leaves.
func (f *fleet) seeStart(m *clusterv1.Machine) {
	text, leaves := m.Annotations[v1alpha1.DepartureAnnotation]
	if _, before := f.starts[m.UID]; !leaves || before {
		return
	}
	var record struct {
		Lane  string    `json:"lane"`
		Since time.Time `json:"since"`
	}
	if json.Unmarshal([]byte(text), &record) != nil {
		return
	}
	f.starts[m.UID] = start{m.Labels[v1alpha1.ScheduledMachineLabel], time.Now(), record.Lane == "exempt"}
}

// has says what is missing for cond, which runs while nothing else is seen.
func (f *fleet) has(cond func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cond()
}

// left are the ScheduledMachines whose machine has begun to leave.
func (f *fleet) left() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := map[string]bool{}
	for _, s := range f.starts {
		left[s.name] = true
	}
	return left
}

// startsAfter are the departures that have begun after an instant and that can wait.
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

// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	planner "github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

var (
	noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	lab  = client.ObjectKey{Namespace: "farm", Name: "lab"}
)

// errLocked is the answer of a webhook.
var errLocked = errors.New("a webhook refuses this Machine")

const (
	lease = 15 * time.Second
	// finalizer keeps a deleted object.
	finalizer = "test/keep"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// A world is a planner in fake time, with the machines of one Cluster.
type world struct {
	*testing.T
	client.Client

	r        *planner.Reconciler
	clock    *clocktesting.FakePassiveClock
	recorder *events.FakeRecorder
	machines int
	// begun has the machines that begin has returned.
	begun map[int]bool
	// warnings are the log lines at warning level.
	warnings []string
	// guarded enables the wipe quarantine. filter is the watch filter.
	guarded bool
	filter  string
	// listed counts the live lists. failing is the error of such a list. newer has the machines with a newer
	// spec at the API server than in the cache.
	listed  int
	failing error
	newer   map[string]bool
	// hidden has the Machines that the cache does not show. stale, if not nil, are the Machines that it shows.
	hidden map[string]bool
	stale  []clusterv1.Machine
	// refused is the error of every patch, undeletable of every deletion. locked has the Machines that a webhook refuses to
	// change and to delete. slow is how long each patch takes.
	refused, undeletable error
	// lost is the error of every patch that was applied. slowDelete is how long each deletion takes.
	lost       error
	slowDelete time.Duration
	// deletions and patches count the calls, starts has the times of the successful deletions. mu guards them.
	mu                 sync.Mutex
	deletions, patches int
	starts             []time.Time
	// patching is called in each patch.
	patching func()
	locked   map[string]bool
	slow     time.Duration
	// slowList is how long each live list takes.
	slowList time.Duration
	// bubble is when the synctest bubble of the test began, zero without one. In a bubble, parallel writes take as long as
	// one.
	bubble time.Time
	// ahead is how far our clock is ahead of the API server's.
	ahead time.Duration
	// unread is the error of a cache that cannot return the Cluster.
	unread error
}

// newWorld returns a manager that has just become leader, and a Cluster with this number of machines.
func newWorld(t *testing.T, machines int) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(noon), recorder: events.NewFakeRecorder(100), begun: map[int]bool{}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: lab.Name}}
	w.Client = fake.NewClientBuilder().WithScheme(server.Client.Scheme()).WithObjects(cluster).
		WithIndex(&v1alpha1.ScheduledMachine{}, wake.ClusterIndex, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ScheduledMachine).Spec.ClusterName}
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				w.mu.Lock()
				w.patches++
				w.mu.Unlock()
				w.after(w.slow)
				if w.patching != nil {
					w.patching()
				}
				if w.refused != nil {
					return w.refused
				}
				if w.locked[obj.GetName()] {
					return errLocked
				}
				return errors.Join(c.Patch(ctx, obj, patch, opts...), w.lost)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				w.after(w.slowDelete)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.deletions++
				if w.undeletable != nil {
					return w.undeletable
				}
				if w.locked[obj.GetName()] {
					return errLocked
				}
				w.starts = append(w.starts, w.clock.Now())
				return c.Delete(ctx, obj, opts...)
			},
		}).Build()
	for range machines {
		w.join(true)
	}
	w.start()
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// join adds a machine.
func (w *world) join(ran bool) {
	w.Helper()
	i := w.machines
	w.machines++
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: box(i), UID: uid("owner", i), Generation: 1}}
	sm.Spec.ClusterName, sm.Status.Phase = lab.Name, v1alpha1.PhaseActive
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: lab.Namespace, Name: machineOf(i), UID: uid("machine", i), Finalizers: []string{finalizer},
		Annotations: map[string]string{v1alpha1.PreDrainHookAnnotation: ""}, OwnerReferences: ownedBy(box(i), sm.UID),
	}}
	m.Spec.ClusterName = lab.Name
	if ran {
		sm.Status.NodeRef, m.Status.NodeRef.Name = &v1alpha1.NodeReference{Name: box(i)}, box(i)
	}
	w.must(w.Create(w.Context(), sm))
	w.must(w.Create(w.Context(), m))
}

func ownedBy(name string, owner types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachine", Name: name, UID: owner, Controller: new(true)}}
}

// start starts a manager without state. Machines that have left are gone.
func (w *world) start() {
	w.Helper()
	w.r = w.newPlanner()
	for _, m := range w.list() {
		if !m.DeletionTimestamp.IsZero() && !children.Held(&m, w.clock.Now()) {
			m.Finalizers = nil
			w.must(w.Update(w.Context(), &m))
		}
	}
}

// newPlanner returns a planner without state.
func (w *world) newPlanner() *planner.Reconciler {
	return &planner.Reconciler{
		Clock: w.clock, Cap: 50_000, Lease: lease, WipeGuard: w.guarded, WatchFilter: w.filter, Actuate: actuate.New(w.Client),
		Reader: objects{Client: w.Client, w: w}, Live: objects{Client: w.Client, w: w, live: true}, Recorder: w.recorder,
	}
}

func (w *world) list() []clusterv1.Machine {
	w.Helper()
	list := &clusterv1.MachineList{}
	w.must(w.List(w.Context(), list))
	return list.Items
}

// warm waits until the warm-up is over.
func (w *world) warm() {
	w.Helper()
	w.plan()
	w.after(lease)
	w.plan()
}

func (w *world) after(d time.Duration) {
	if w.bubble.IsZero() {
		w.clock.SetTime(w.clock.Now().Add(d))
		return
	}
	time.Sleep(d)
	w.clock.SetTime(noon.Add(time.Since(w.bubble)))
}

// machine returns a Machine, nil if it is gone.
func (w *world) machine(i int) *clusterv1.Machine {
	w.Helper()
	m := &clusterv1.Machine{}
	err := w.Get(w.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: machineOf(i)}, m)
	w.must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return m
}

// change changes a Machine.
func (w *world) change(i int, change func(*clusterv1.Machine)) {
	w.Helper()
	m := w.machine(i)
	change(m)
	w.must(w.Update(w.Context(), m))
}

// label labels a ScheduledMachine for the manager with a watch filter.
func (w *world) label(i int, filter string) {
	w.Helper()
	sm := &v1alpha1.ScheduledMachine{}
	w.must(w.Get(w.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: box(i)}, sm))
	sm.Labels = map[string]string{clusterv1.WatchLabel: filter}
	w.must(w.Update(w.Context(), sm))
}

// leaves requests departures in the lane.
func (w *world) leaves(lane v1alpha1.DepartureLane, machines ...int) {
	w.Helper()
	now := v1alpha1.DepartureTime(w.clock.Now())
	d := v1alpha1.Departure{Lane: lane, Reason: v1alpha1.WindowClosed, RequestedAt: now, ActionID: "a"}
	if lane == v1alpha1.ScheduledLane {
		d.End = now
	}
	for _, i := range machines {
		w.change(i, func(m *clusterv1.Machine) { children.Request(m, d, w.clock.Now()) })
	}
}

// stays makes a machine wanted again.
func (w *world) stays(i int) { w.change(i, children.Withdraw) }

// plan runs the planner, and returns its RequeueAfter, zero if none.
func (w *world) plan() time.Duration {
	w.Helper()
	log := funcr.New(func(_, line string) {
		if strings.Contains(line, `"level"="warn"`) {
			w.warnings = append(w.warnings, line)
		}
	}, funcr.Options{})
	res, err := w.r.Reconcile(ctrl.LoggerInto(w.Context(), log), ctrl.Request{NamespacedName: lab})
	w.must(err)
	return res.RequeueAfter
}

// waits returns why a machine is not admitted.
func (w *world) waits(i int) v1alpha1.DepartureWaiting {
	w.Helper()
	if state, d := children.StateOf(w.machine(i), w.clock.Now()); state == children.Requested && d.Waiting != nil {
		return *d.Waiting
	}
	return v1alpha1.DepartureWaiting{}
}

// admitted returns the machines that are admitted and not deleted.
func (w *world) admitted() (found []int) {
	w.Helper()
	for i := range w.machines {
		if m := w.machine(i); m != nil {
			if state, _ := children.StateOf(m, w.clock.Now()); state == children.Admitted {
				found = append(found, i)
			}
		}
	}
	return found
}

// begin returns the machines that have started to leave since the previous call. The events of their deletions start the
// planner.
func (w *world) begin() (began []int) {
	w.Helper()
	for i := range w.machines {
		m := w.machine(i)
		if m == nil || m.DeletionTimestamp.IsZero() || w.begun[i] {
			continue
		}
		w.begun[i] = true
		if d, _ := children.DepartureOf(m, w.clock.Now()); d.Lane != v1alpha1.ExemptLane {
			began = append(began, i)
		}
	}
	if len(began) > 0 {
		w.plan()
	}
	return began
}

// run runs the planner every two seconds. It returns the machines that have started to leave.
func (w *world) run(d time.Duration) (began []int) {
	w.Helper()
	const step = 2 * time.Second
	for range d / step {
		w.plan()
		began = append(began, w.begin()...)
		w.after(step)
	}
	return began
}

// reclaim records an urgent departure and deletes the Machine.
func (w *world) reclaim(i int) {
	w.Helper()
	w.change(i, func(m *clusterv1.Machine) {
		children.Record(m, v1alpha1.NewDeparture(v1alpha1.ReclaimedByOwner, w.clock.Now(), "a"))
	})
	w.must(w.Delete(w.Context(), w.machine(i)))
}

// annotate sets the annotations of the Cluster.
func (w *world) annotate(annotations map[string]string) {
	w.Helper()
	c := &clusterv1.Cluster{}
	w.must(w.Get(w.Context(), lab, c))
	c.Annotations = annotations
	w.must(w.Update(w.Context(), c))
}

// events returns the Events since the previous call.
func (w *world) events() (all []string) {
	for {
		select {
		case e := <-w.recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func box(i int) string { return fmt.Sprintf("box-%02d", i) }

func machineOf(i int) string { return children.NamesOf(box(i)).Machine }

func uid(of string, i int) types.UID { return types.UID(fmt.Sprint(of, "-", i)) }

// objects is the cache or the API server.
type objects struct {
	client.Client

	w    *world
	live bool
}

func (o objects) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if o.live {
		o.w.hears(ctx, o.w.ahead)
	}
	if _, cluster := obj.(*clusterv1.Cluster); cluster && o.w.unread != nil {
		return o.w.unread
	}
	return o.Client.Get(ctx, key, obj, opts...)
}

func (o objects) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if o.live {
		o.w.after(o.w.slowList)
		if o.w.listed++; o.w.failing != nil {
			return o.w.failing
		}
	}
	if err := o.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	switch l := list.(type) {
	case *v1alpha1.ScheduledMachineList:
		for i := range l.Items {
			if o.live && o.w.newer[l.Items[i].Name] {
				l.Items[i].Generation++
			}
		}
	case *clusterv1.MachineList:
		if !o.live && o.w.stale != nil {
			l.Items = slices.Clone(o.w.stale)
		}
		if !o.live {
			l.Items = slices.DeleteFunc(l.Items, func(m clusterv1.Machine) bool { return o.w.hidden[m.Name] })
		}
	}
	return nil
}

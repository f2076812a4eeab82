// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	namespace = "farm"
	lab       = "lab"
)

// The kinds of the objects of a machine.
var (
	bootstrapKind      = builder.GenericBootstrapConfigKind
	infrastructureKind = builder.GenericInfrastructureMachineKind
)

var (
	scheme   = runtime.NewScheme()
	nodeType = reflect.TypeFor[*corev1.Node]()
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	debug.SetGCPercent(400) // Few objects live long.
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// monday is when the machines of a fleet are created. Their windows end at 17:00.
var (
	monday = time.Date(2026, time.March, 2, 10, 0, 0, 0, time.UTC)
	five   = monday.Add(7 * time.Hour)
)

// A world is an API server, its managers and its other clients, and the time. One event happens after the other, in an
// order that depends on the seed.
type world struct {
	*testing.T
	ledger

	now      time.Time
	api      *apiServer
	managers []*manager
	others   agenda[func()]
	rand     *rand.Rand
	// size is the initial number of ScheduledMachines, in so many Clusters.
	size, clusters int

	// cut is the rail that is cut.
	cut string
	// paused is the actuation pause of managers that start.
	paused bool
	// apiAhead is how far the clock of the API server is ahead.
	apiAhead time.Duration
	// unreachable reports that no manager reaches the workload cluster.
	unreachable bool
	// drain is how long Cluster API drains.
	drain time.Duration

	// These functions inject errors and delays into the managers' requests; nil means none.
	refuse     func(write) error         // before the write is executed
	lose       func(write) bool          // the response
	slow       func(write) time.Duration // before and after the execution
	unreadable func(kind string) error   // a live read
	shorten    func(kind string, found []runtime.Object) []runtime.Object
}

// A fleet is the initial state of a story: running machines with windows until five. Its creation is slow, so there is
// one for each size and number of Clusters.
var (
	making sync.Mutex
	fleets = map[[2]int]*apiServer{}
)

func fleet(t *testing.T, size, clusters int) *apiServer {
	t.Helper()
	making.Lock()
	defer making.Unlock()
	of := [2]int{size, clusters}
	if fleets[of] == nil {
		fleets[of] = newFleet(t, size, clusters)
	}
	return fleets[of]
}

// newWorld is a fleet with a manager that has led for long, and a rail that is cut; empty is none.
func newWorld(t *testing.T, size, clusters int, cut string) *world {
	t.Helper()
	w := &world{
		T: t, now: monday.Add(30 * time.Minute), size: size, clusters: clusters, cut: cut, drain: 20 * time.Second,
		rand: rand.New(rand.NewPCG(*seed, uint64(size))),
	}
	w.api = fleet(t, size, clusters).copied(func() time.Time { return w.now })
	w.live()
	w.start()
	w.run(2 * time.Minute)
	w.begin()
	return w
}

// live starts the simulation of the other clients.
func (w *world) live() {
	w.api.watches = []func(change){w.see, w.clusterAPI, w.garbageCollector, func(c change) {
		for _, m := range w.managers {
			m.expect(c)
		}
	}}
	w.count()
	w.every(2*time.Second, func() {
		for _, m := range w.managers {
			m.hear() // The manager renews its lease.
		}
	})
	w.Cleanup(func() {
		for len(w.managers) > 0 {
			w.kill(w.managers[0])
		}
	})
}

func newFleet(t *testing.T, size, clusters int) *apiServer {
	t.Helper()
	w := &world{T: t, now: monday, size: size, clusters: clusters, rand: rand.New(rand.NewPCG(*seed, uint64(size)))}
	w.api = &apiServer{now: func() time.Time { return w.now }, objects: objects{}}
	w.live()
	for _, kind := range []string{bootstrapKind, infrastructureKind} {
		group := builder.BootstrapGroupVersion
		if kind == infrastructureKind {
			group = builder.InfrastructureGroupVersion
		}
		w.create(testenv.Definition(group.WithKind(kind)))
	}
	for i := range clusters {
		c := testenv.Cluster(namespace)
		c.Name = clusterName(i)
		w.create(c)
	}
	for i := range size {
		sm := testenv.ScheduledMachine(namespace, name(i))
		sm.Spec.ClusterName = clusterName(i % clusters)
		sm.Spec.Schedule = v1alpha1.Schedule{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-16"}}
		sm.Spec.Priority = new(int32(i % 100))
		w.create(sm)
	}
	m := w.start()
	w.run(20 * time.Minute)
	if len(w.active) != size {
		t.Fatalf("%d of %d machines run: %+v", len(w.active), size, w.machine(0).Status)
	}
	w.kill(m)
	w.api.watches = nil
	return w.api
}

func name(i int) string { return fmt.Sprintf("box-%04d", i) }

// clusterName is the name of a Cluster. The first is lab.
func clusterName(i int) string {
	if i == 0 {
		return lab
	}
	return fmt.Sprintf("%s-%d", lab, i)
}

func (w *world) create(obj client.Object) {
	w.Helper()
	if _, err := w.api.create(obj); err != nil {
		w.Fatal(err)
	}
}

// after calls f after a time, and every calls it repeatedly.
func (w *world) after(d time.Duration, f func()) { w.others.put(w.now.Add(d), f) }

func (w *world) every(d time.Duration, f func()) {
	w.after(d, func() {
		f()
		w.every(d, f)
	})
}

// pass advances the time while a manager waits for a response.
func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// run advances the time, and runs all due events.
func (w *world) run(d time.Duration) {
	w.Helper()
	for end := w.now.Add(d); ; {
		w.settle()
		next, ok := w.next()
		if !ok || next.After(end) {
			if w.now.Before(end) {
				w.now = end
			}
			return
		}
		if w.now.Before(next) {
			w.now = next
		}
	}
}

// until runs until so returns true, or until an instant.
func (w *world) until(end time.Time, so func() bool) {
	w.Helper()
	for !so() && w.now.Before(end) {
		w.run(min(10*time.Second, end.Sub(w.now)))
	}
}

// next is the time of the next event.
func (w *world) next() (next time.Time, ok bool) {
	sooner := func(at time.Time, is bool) {
		if is && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	sooner(w.others.next())
	for _, m := range w.managers {
		if len(m.pending) > 0 {
			sooner(m.pending[0].at, true)
		}
		for _, c := range m.controllers {
			sooner(c.queue.next())
		}
	}
	return next, ok
}

// endless is the number of events at one instant, by machine, that counts as an endless loop.
const endless = 500

// settle runs all events that are due.
func (w *world) settle() {
	w.Helper()
	for n := 0; ; {
		did := false
		for at, ok := w.others.next(); ok && !at.After(w.now); at, ok = w.others.next() {
			w.others.take()()
			did = true
		}
		for _, m := range w.managers {
			did = m.deliver() || did
		}
		for range 10 { // that many workers run before the caches show their results
			c := w.pick()
			if c == nil {
				break
			}
			w.work(c)
			did = true
			if n++; n > endless*max(w.size, 10) {
				w.Fatalf("at %s there is no end of work: %s", w.now.Format(time.TimeOnly), w.ready())
			}
		}
		if !did {
			return
		}
	}
}

// pick returns a controller with ready items, nil if there is none. It prefers controllers with many items, but the
// planner also runs in between.
func (w *world) pick() *running {
	var busy []*running
	ready := 0
	for _, m := range w.managers {
		for _, c := range m.controllers {
			if n := c.queue.wake(); n > 0 {
				busy = append(busy, c)
				ready += n
			}
		}
	}
	if len(busy) == 0 {
		return nil
	}
	if w.rand.IntN(16) > 0 {
		for n := w.rand.IntN(ready); len(busy) > 1 && n >= busy[0].queue.wake(); busy = busy[1:] {
			n -= busy[0].queue.wake()
		}
		return busy[0]
	}
	return busy[w.rand.IntN(len(busy))]
}

func (w *world) ready() (all []string) {
	for _, m := range w.managers {
		for _, c := range m.controllers {
			for _, req := range c.queue.ready[:min(3, len(c.queue.ready))] {
				all = append(all, req.String())
			}
		}
	}
	return all
}

// work reconciles one item, and handles the result as the controller's workers do.
func (w *world) work(c *running) {
	req := c.queue.take(w.rand.IntN(c.queue.wake()))
	result, err := c.Reconcile(context.Background(), req)
	switch {
	case err != nil:
		c.queue.AddRateLimited(req)
	case result.RequeueAfter > 0:
		c.queue.Forget(req)
		c.queue.AddAfter(req, result.RequeueAfter)
	default:
		c.queue.Forget(req)
	}
}

// A recorder records Events.
type recorder struct{ w *world }

func (r recorder) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) { r.w.shown(reason) }

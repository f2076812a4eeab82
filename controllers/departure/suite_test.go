// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	planner "github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

var (
	noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	lab  = client.ObjectKey{Namespace: "farm", Name: "lab"}
)

const lease = 15 * time.Second

// A world is a planner in fake time, with the reported machines of one Cluster.
type world struct {
	*testing.T
	r        *planner.Reconciler
	clock    *clocktesting.FakePassiveClock
	recorder *events.FakeRecorder
	entries  map[int]roster.Entry
	// orphans are Machines whose ScheduledMachines are gone.
	orphans []clusterv1.Machine
	// warnings are the log lines at warning level.
	warnings []string
	// guarded enables the wipe quarantine.
	guarded bool
	// listed counts the live lists. failing is the error of such a list. newer has the machines with a newer
	// spec at the API server than in the cache.
	listed  int
	failing error
	newer   map[int]bool
	// listing is called during a live list. It may be nil.
	listing func()
	// ahead is how far our clock is ahead of the API server's.
	ahead time.Duration
	// annotations are the annotations of the Cluster. unread is the error of a cache that cannot return the
	// Cluster.
	annotations map[string]string
	unread      error
}

// newWorld returns a manager that has just become leader, and a Cluster with this number of machines.
func newWorld(t *testing.T, machines int) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(noon), recorder: events.NewFakeRecorder(100), entries: map[int]roster.Entry{}}
	for i := range machines {
		w.entries[i] = roster.Entry{Cluster: lab, Machine: uid(i)}
	}
	w.start()
	return w
}

// start starts a manager without state. Machines that have left are gone.
func (w *world) start() {
	w.r = &planner.Reconciler{
		Clock: w.clock, Roster: &roster.Roster{}, Limits: departure.Limits{Cap: 50_000}, Lease: lease, WipeGuard: w.guarded,
		Reader: objects{w: w}, Live: objects{w: w, live: true}, Recorder: w.recorder,
	}
	for i, e := range w.entries {
		if e.Left.IsZero() {
			w.report(i, func(*roster.Entry) {})
		}
	}
}

// warm waits until the warm-up is over.
func (w *world) warm() {
	w.Helper()
	w.plan()
	w.after(lease)
	w.plan()
}

func (w *world) after(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// report changes the entry of a machine and reports it.
func (w *world) report(i int, change func(*roster.Entry)) {
	e := w.entries[i]
	change(&e)
	w.entries[i] = e
	w.r.Roster.Report(box(i), e, w.clock.Now())
}

// leaves makes machines due in the lane.
func (w *world) leaves(lane departure.Lane, machines ...int) {
	for _, i := range machines {
		w.report(i, func(e *roster.Entry) {
			e.From, e.Lane = w.clock.Now(), lane
			if lane == departure.Scheduled {
				e.End = e.From
			}
		})
	}
}

// stays makes a machine wanted again.
func (w *world) stays(i int) { w.report(i, func(e *roster.Entry) { e.From = time.Time{} }) }

// plan runs the planner, and returns its RequeueAfter, zero if none.
func (w *world) plan() time.Duration {
	w.Helper()
	log := funcr.New(func(_, line string) {
		if strings.Contains(line, `"level"="warn"`) {
			w.warnings = append(w.warnings, line)
		}
	}, funcr.Options{})
	res, err := w.r.Reconcile(ctrl.LoggerInto(w.Context(), log), ctrl.Request{NamespacedName: lab})
	if err != nil {
		w.Fatal(err)
	}
	return res.RequeueAfter
}

// verdict requests the grant of a machine.
func (w *world) verdict(i int) roster.Verdict {
	return w.r.Roster.RequestGrant(box(i), uid(i), w.clock.Now())
}

// begin starts the departures of all granted machines, and returns these machines.
func (w *world) begin() (began []int) {
	for i := range len(w.entries) {
		if !w.entries[i].From.IsZero() && w.entries[i].Left.IsZero() && w.verdict(i).Granted {
			w.report(i, func(e *roster.Entry) { e.Left = w.clock.Now() })
			began = append(began, i)
		}
	}
	return began
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

func box(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "farm", Name: fmt.Sprintf("box-%02d", i)}
}

func uid(i int) types.UID { return types.UID(fmt.Sprint("uid-", i)) }

// objects is the cache or the API server: every Cluster, and the reported machines.
type objects struct {
	client.Reader

	w    *world
	live bool
}

func (o objects) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if o.live {
		o.w.hears(ctx, o.w.ahead)
	}
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	obj.SetAnnotations(o.w.annotations)
	return o.w.unread
}

func (o objects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if o.live {
		o.w.listed++
		if o.w.listing != nil {
			o.w.listing()
		}
		if o.w.failing != nil {
			return o.w.failing
		}
	}
	if _, machines := list.(*clusterv1.MachineList); machines {
		list.(*clusterv1.MachineList).Items = o.w.orphans
		return nil
	}
	for i, e := range o.w.entries {
		sm := v1alpha1.ScheduledMachine{}
		sm.Namespace, sm.Name, sm.Generation, sm.Spec.ClusterName = lab.Namespace, box(i).Name, e.Generation, lab.Name
		if o.live && o.w.newer[i] {
			sm.Generation++
		}
		if e.Left.IsZero() {
			sm.Status.Phase, sm.Status.NodeRef = v1alpha1.PhaseActive, &v1alpha1.NodeReference{}
		}
		l := list.(*v1alpha1.ScheduledMachineList)
		l.Items = append(l.Items, sm)
	}
	return nil
}

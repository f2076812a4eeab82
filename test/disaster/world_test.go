// SPDX-License-Identifier: Apache-2.0

package disaster

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

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// patience is how long one step may take on a busy machine.
	patience = 3 * time.Minute
	// writers is how many objects a tool writes at once.
	writers = 8
	// still is longer than the time in which starts are counted: if nobody leaves for so long,
	// nobody may.
	still = 12 * time.Second
	// warm is longer than a new leader warms up.
	warm = 20 * time.Second
)

// A world is the fleet of the test, and everybody who uses it.
type world struct {
	*testing.T
	*specs.Cluster
	*history
	*fleet
}

// A history is what has happened in all disasters so far.
type history struct {
	names []string

	mu       sync.Mutex // of what the replicas are and do
	replicas []*replica
	// leader is the one that leads, and led when it was first seen to.
	leader *replica
	led    time.Time
	// ended are the instants at which replicas that had ended started again.
	ended []time.Time
	// last is what each of them said last.
	last []string
	// others are the audit logs of managers whose clock was wrong.
	others []string
	// wrong is when the last disaster began, and asks are the owners' requests in it.
	wrong time.Time
	asks  []ask
}

// newWorld has as many machines run.
func newWorld(t *testing.T, size int) *world {
	t.Helper()
	f, err := follow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := (&world{history: &history{}, fleet: f}).in(t)
	for i := range size {
		w.names = append(w.names, fmt.Sprintf("box-%03d", i))
	}
	standby, err := shared.NewAddon(w.step(), plane.AddonOptions{
		Name: "5spot-standby", Path: shared.Program("manager"), ServiceAccount: system.ManagerAccount,
		Args: append(slices.Clone(election), "--audit-log="+auditLog()),
	})
	w.must(err)
	w.replicas = []*replica{{Process: shared.Manager}, {Process: standby}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the standby:\n%s", standby.LogTail(40))
		}
	})
	go w.keep(t.Context())
	w.startReplicas()
	w.apply()
	return w
}

// in is the world for another test.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	return &world{T: t, history: w.history, fleet: w.fleet, Cluster: &specs.Cluster{
		T: t, Management: shared.Management.Client, Workload: lab.Client, Namespace: namespace, Patience: patience,
	}}
}

func scheduledMachine(name string) *v1alpha1.ScheduledMachine {
	return system.ScheduledMachine(lab, name, infrav1.PlaneMachineSpec{})
}

// apply makes the ScheduledMachines, and waits until their machines run. A few join at a time:
// on a busy machine the leader could else not renew its lease. Of those who wait the first ones
// leave first.
func (w *world) apply() {
	w.Helper()
	for names := range slices.Chunk(w.names, 10) {
		w.each(names, func(name string) error {
			sm := scheduledMachine(name)
			sm.Spec.Priority = new(int32(slices.Index(w.names, name) * 100 / len(w.names)))
			return client.IgnoreAlreadyExists(w.Management.Create(w.Context(), sm))
		})
		w.waitRunning(names)
	}
}

// each does the same for many, several at a time, as a tool does, and tries again what fails:
// the manager that serves the webhook may be starting.
func (w *world) each(names []string, f func(name string) error) {
	w.Helper()
	work, errs := make(chan string), make([]error, writers)
	var done sync.WaitGroup
	for i := range writers {
		done.Go(func() {
			for name := range work {
				errs[i] = errors.Join(errs[i], plane.Until(w.step(), func(context.Context) error { return f(name) }))
			}
		})
	}
	for _, name := range names {
		work <- name
	}
	close(work)
	done.Wait()
	w.must(errors.Join(errs...))
}

// patch sends one merge patch to many ScheduledMachines.
func (w *world) patch(names []string, patch string) {
	w.Helper()
	w.each(names, func(name string) error {
		sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return client.IgnoreNotFound(w.Management.Patch(w.Context(), sm, client.RawPatch(types.MergePatchType, []byte(patch))))
	})
}

// half are those that leave first.
func (w *world) half() []string { return w.names[:len(w.names)/2] }

// atOnce is how many may start to leave in any 10 s.
func (w *world) atOnce() int { return max(1, len(w.names)/20) }

// mistake notes that the disaster begins now.
func (w *world) mistake() { w.wrong = time.Now() }

// sees waits until people see something.
func (w *world) sees(reason string) (seen signal) {
	w.Helper()
	w.until(func() error {
		if seen = w.signals[reason]; seen.at.IsZero() {
			return fmt.Errorf("nobody sees %s", reason)
		}
		return nil
	})
	return seen
}

// waitStarts waits until so many departures have begun that can wait.
func (w *world) waitStarts(n int) {
	w.Helper()
	w.until(func() error {
		if got := w.waited(); got < n {
			return fmt.Errorf("%d machines have started to leave, want %d", got, n)
		}
		return nil
	})
}

// stays holds that nobody leaves who can wait.
func (w *world) stays() {
	w.Helper()
	from := time.Now()
	time.Sleep(still)
	if starts := w.startsAfter(from); len(starts) > 0 {
		w.Errorf("nobody may leave now: %v", starts)
	}
}

// ask has an owner ask for the last of some machines that has not left, and waits until the box
// is given back.
func (w *world) ask(of []string) {
	w.Helper()
	w.Logf("an owner asks %s after the beginning", time.Since(w.wrong).Round(time.Millisecond))
	left := w.left()
	for _, name := range slices.Backward(of) {
		if left[name] {
			continue
		}
		sm := scheduledMachine(name)
		w.must(w.Management.Get(w.step(), client.ObjectKeyFromObject(sm), sm))
		node := w.Node(sm)
		infra := sm.Status.InfrastructureRef
		begun, peer := time.Now(), make(chan time.Duration, 1)
		go func() { peer <- w.peer() }()
		w.AskBack(node, "java")
		w.until(func() error {
			if m := w.infra[infra.Name]; m != nil && m.DeletionTimestamp.IsZero() {
				return fmt.Errorf("the owner of %s waits", name)
			}
			if sm := w.scheduled[name]; sm != nil && sm.Status.Phase == v1alpha1.PhaseActive {
				return fmt.Errorf("%s does not say that its owner has asked", name)
			}
			return nil
		})
		w.asks = append(w.asks, ask{name, node.Name, begun, <-peer})
		return
	}
	w.Fatal("everybody has left")
}

// peer is how long somebody else needs at the same time for what an owner waits for: five
// requests to the API server, one after the other.
func (w *world) peer() time.Duration {
	begun := time.Now()
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "peer-"}}
	_ = plane.Until(w.step(), func(ctx context.Context) error { return w.Management.Create(ctx, note) })
	for _, patch := range []string{`{"data":{"a":"1"}}`, `{"data":{"a":"2"}}`, `{"data":{"a":"3"}}`} {
		_ = w.Management.Patch(w.step(), note, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	_ = w.Management.Delete(w.step(), note)
	return time.Since(begun)
}

// calm waits until the manager has seen every spec, and keeps nobody that is to leave.
func (w *world) calm() {
	w.Helper()
	w.until(func() error {
		for _, sm := range w.scheduled {
			if sm.Status.ObservedGeneration != sm.Generation {
				return fmt.Errorf("nobody has seen the spec of %s", sm.Name)
			}
			if c := specs.Condition(sm, v1alpha1.DepartureGatedCondition); c.Status == metav1.ConditionTrue {
				return fmt.Errorf("%s is still to leave: %s", sm.Name, c.Message)
			}
		}
		return nil
	})
}

// rejoin waits until all machines run. A schedule that was turned off for an owner is turned
// on again.
func (w *world) rejoin() {
	w.Helper()
	w.waitRunning(w.names)
}

func (w *world) waitRunning(names []string) {
	w.Helper()
	for {
		var off []string
		w.until(func() (first error) {
			for _, name := range names {
				sm := w.scheduled[name]
				if sm != nil && sm.Status.Phase == v1alpha1.PhaseDisabled && !sm.ScheduleEnabled() {
					off = append(off, name)
				}
				if err := runs(sm); err != nil && first == nil {
					first = fmt.Errorf("ScheduledMachine %s: %w", name, err)
				}
			}
			if len(off) > 0 {
				return nil
			}
			return first
		})
		if len(off) == 0 {
			return
		}
		w.patch(off, `{"spec":{"schedule":{"enabled":true}}}`)
	}
}

func runs(sm *v1alpha1.ScheduledMachine) error {
	switch {
	case sm == nil || !sm.DeletionTimestamp.IsZero():
		return errors.New("it does not exist")
	case sm.Status.Phase != v1alpha1.PhaseActive || sm.Status.ObservedGeneration != sm.Generation:
		return fmt.Errorf("its phase is %q: %s", sm.Status.Phase, sm.Status.Message)
	default:
		if c := specs.Condition(sm, v1alpha1.ReadyCondition); c.Status != metav1.ConditionTrue {
			return fmt.Errorf("it is not Ready: %s", c.Message)
		}
		return nil
	}
}

// uids are those of the Machines.
func (w *world) uids() map[string]types.UID {
	uids := map[string]types.UID{}
	_ = w.has(func() error {
		for _, m := range w.machines {
			uids[m.Labels[v1alpha1.ScheduledMachineLabel]] = m.UID
		}
		return nil
	})
	return uids
}

// wantKept checks that a machine is what it was, and that its Node takes pods.
func (w *world) wantKept(name string, uid types.UID) {
	w.Helper()
	m := &clusterv1.Machine{}
	w.must(w.Management.Get(w.step(), client.ObjectKey{Namespace: namespace, Name: name + "-machine"}, m))
	if m.UID != uid || !m.DeletionTimestamp.IsZero() {
		w.Errorf("the machine of %s has gone, and it only waited", name)
	}
	if node := w.Node(scheduledIn(w, name)); node.Spec.Unschedulable || !node.DeletionTimestamp.IsZero() {
		w.Errorf("Node %s goes, and its machine only waited", node.Name)
	}
}

func scheduledIn(w *world, name string) *v1alpha1.ScheduledMachine {
	w.fleet.mu.Lock()
	defer w.fleet.mu.Unlock()
	return w.scheduled[name]
}

// A replica is one process of the manager.
type replica struct {
	*plane.Process
	// down says that it is not to run.
	down bool
	// from is how long its log was when it started.
	from int
}

// leads reports whether it has said so since it started, and runs.
func (r *replica) leads() bool {
	text, err := os.ReadFile(r.LogPath())
	return err == nil && r.PID() != 0 && strings.Contains(string(text[min(r.from, len(text)):]), "Successfully acquired lease")
}

// keep starts replicas that are to run and do not, until ctx ends: one that cannot renew its
// lease ends by itself.
func (h *history) keep(ctx context.Context) {
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		h.revive(ctx)
	}
}

func (h *history) revive(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.replicas {
		if r.down || r.PID() != 0 {
			continue
		}
		h.ended = append(h.ended, time.Now())
		if text, err := os.ReadFile(r.LogPath()); err == nil {
			r.from = len(text)
			h.last = append(h.last, fmt.Sprintf("%s at %s: %s", r.LogPath(), time.Now().Format(time.TimeOnly), r.LogTail(3)))
		}
		if r == h.leader {
			h.leader = nil
		}
		_ = r.Start(ctx) // It is tried again, and its log says why.
	}
}

// startReplicas starts those that do not run, and waits until one leads.
func (w *world) startReplicas() {
	w.Helper()
	w.setDown(false, w.replicas...)
	w.waitLeader()
}

// setDown says which replicas are to run.
func (h *history) setDown(down bool, replicas ...*replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range replicas {
		r.down = down
	}
}

// warmUp waits until the leader knows the fleet: the mistake is to be one that nobody awaits.
func (w *world) warmUp() {
	w.Helper()
	w.waitLeader()
	time.Sleep(time.Until(w.led.Add(warm)))
}

// waitLeader waits until one leads.
func (w *world) waitLeader() (leader *replica) {
	w.Helper()
	w.must(plane.Until(w.step(), func(context.Context) error {
		w.history.mu.Lock()
		defer w.history.mu.Unlock()
		for _, r := range w.replicas {
			if !r.leads() {
				continue
			}
			if leader = r; leader != w.leader {
				w.leader, w.led = leader, time.Now()
			}
			return nil
		}
		return errors.New("nobody leads")
	}))
	return leader
}

// kill kills managers as a crash would.
func (w *world) kill(replicas ...*replica) {
	w.Helper()
	w.setDown(true, replicas...)
	for _, r := range replicas {
		w.must(r.Kill())
	}
}

// stopReplicas gives them time to write what they did.
func (w *world) stopReplicas() {
	w.Helper()
	w.setDown(true, w.replicas...)
	for _, r := range slices.Backward(w.replicas) {
		w.must(r.Stop())
	}
}

// step is the time for one step.
func (w *world) step() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}

// until waits for what is seen.
func (w *world) until(cond func() error) {
	w.Helper()
	w.must(plane.Until(w.step(), func(context.Context) error { return w.has(cond) }))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

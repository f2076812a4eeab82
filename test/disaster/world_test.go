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
	// patience bounds one step, on a busy machine. It exceeds the longest back-off of a manager, five minutes: an
	// object whose kind could not be read for minutes is read again only then.
	patience = 6 * time.Minute
	// writers is how many objects a tool writes in parallel.
	writers = 8
	// still exceeds the window of the departure cap: if no machine leaves for so long, no departure is allowed.
	still = 12 * time.Second
	// warm exceeds the warm-up of a new leader.
	warm = 20 * time.Second
)

// A world is the fleet of the test, with its managers and users.
type world struct {
	*testing.T
	*specs.Cluster
	*history
	*fleet
}

// A history holds the state that outlives one disaster.
type history struct {
	names []string

	mu       sync.Mutex // guards the state of the replicas
	replicas []*replica
	// leader is the leading replica. led is when the test first observed that.
	leader *replica
	led    time.Time
	// ended are the times at which a replica restarted after it had ended.
	ended []time.Time
	// last is the last log line of each.
	last []string
	// others are the audit logs of managers with a wrong clock.
	others []string
	// wrong is the start of the last disaster. requests are the owners' requests in it.
	wrong    time.Time
	requests []request
}

// newWorld starts that many machines.
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

// in returns the world for another test.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	return &world{T: t, history: w.history, fleet: w.fleet, Cluster: &specs.Cluster{
		T: t, Management: shared.Management.Client, Workload: lab.Client, Namespace: namespace, Patience: patience,
	}}
}

func scheduledMachine(name string) *v1alpha1.ScheduledMachine {
	return system.ScheduledMachine(lab, name, infrav1.PlaneMachineSpec{})
}

// apply creates the ScheduledMachines, and waits until their machines run. Only a few join at a time: on a busy machine
// the leader could otherwise fail to renew its lease. The first ones have the first turn to leave.
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

// each calls f for many names, several in parallel. It retries errors, because the manager with the webhook may be
// starting.
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

// half returns the machines with the first turn to leave.
func (w *world) half() []string { return w.names[:len(w.names)/2] }

// atOnce returns the departure cap: how many may start to leave in any 10 s.
func (w *world) atOnce() int { return max(1, len(w.names)/20) }

// mistake records that the disaster begins now.
func (w *world) mistake() { w.wrong = time.Now() }

// sees waits for a signal.
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

// waitStarts waits until that many departures have begun, without exempt ones.
func (w *world) waitStarts(n int) {
	w.Helper()
	w.until(func() error {
		if got := w.waited(); got < n {
			return fmt.Errorf("%d machines have started to leave, want %d", got, n)
		}
		return nil
	})
}

// stays checks that no departure starts, except exempt ones.
func (w *world) stays() {
	w.Helper()
	from := time.Now()
	time.Sleep(still)
	if starts := w.startsAfter(from); len(starts) > 0 {
		w.Errorf("nobody may leave now: %v", starts)
	}
}

// requestMachine makes an owner's request for the last remaining machine of a list, and waits until its infrastructure
// is deleted.
func (w *world) requestMachine(of []string) {
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
		w.requests = append(w.requests, request{name, node.Name, begun, <-peer})
		return
	}
	w.Fatal("everybody has left")
}

// peer measures another client at the same time: five sequential requests to the API server.
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

// calm waits until the manager has observed every spec, and no departure waits.
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

// rejoin waits until all machines run. It turns on schedules that were turned off for an owner.
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

// uids returns the UIDs of the Machines.
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

// wantKept checks that a Machine is the same, and that its Node accepts pods.
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
	// down keeps the replica from being restarted.
	down bool
	// from is the length of its log when it started.
	from int
}

// leads reports whether the replica runs and has logged, since its start, that it leads.
func (r *replica) leads() bool {
	text, err := os.ReadFile(r.LogPath())
	return err == nil && r.PID() != 0 && strings.Contains(string(text[min(r.from, len(text)):]), "Successfully acquired lease")
}

// keep restarts replicas that have ended and are not down, until ctx ends: a replica that cannot renew its lease ends.
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
		_ = r.Start(ctx) // It is retried, and its log has the reason.
	}
}

// startReplicas starts stopped replicas, and waits until one leads.
func (w *world) startReplicas() {
	w.Helper()
	w.setDown(false, w.replicas...)
	w.waitLeader()
}

// setDown sets down of replicas.
func (h *history) setDown(down bool, replicas ...*replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range replicas {
		r.down = down
	}
}

// warmUp waits until the leader has warmed up, so that the mistake meets a manager in normal operation.
func (w *world) warmUp() {
	w.Helper()
	w.waitLeader()
	time.Sleep(time.Until(w.led.Add(warm)))
}

// waitLeader waits until a replica leads.
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

// stopReplicas stops the managers gracefully, so that they write their logs.
func (w *world) stopReplicas() {
	w.Helper()
	w.setDown(true, w.replicas...)
	for _, r := range slices.Backward(w.replicas) {
		w.must(r.Stop())
	}
}

// step is a context for one step.
func (w *world) step() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}

// until waits until cond returns nil for the observed state.
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

// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// hookWorld is a Machine of a ScheduledMachine that is being deleted, with extensions whose responses the test
// sets. The test does the part of Cluster API.
type hookWorld struct {
	*testenv.Fixture
	cluster *clusterv1.Cluster
	sm      *v1alpha1.ScheduledMachine
	machine *clusterv1.Machine
	clock   *clocktesting.FakePassiveClock
	hooks   []*v1alpha1.MachineDeletionHook
	// planned reports that the planner does not admit the Machine. Otherwise settle admits it.
	planned bool
	// reads intercepts reads from the manager's cache.
	reads interceptor.Funcs

	r        *departure.HookReconciler
	recorder *events.FakeRecorder
	// woken has an entry for each response.
	woken chan types.NamespacedName

	mu sync.Mutex
	// answers has the retryAfterSeconds of each extension, says its message.
	answers map[string]int32
	says    map[string]string
	calls   []string
}

func newHookWorld(t *testing.T, extensions ...string) *hookWorld {
	t.Helper()
	ns := server.Namespace(t)
	w := &hookWorld{Fixture: server.Fixture(t), answers: map[string]int32{}, says: map[string]string{}, recorder: events.NewFakeRecorder(100)}
	w.cluster, w.sm = testenv.Cluster(ns), testenv.ScheduledMachine(ns, "box")
	w.Create(w.cluster, w.sm)
	w.Must(w.Client.DeleteAllOf(t.Context(), &v1alpha1.MachineDeletionHook{})) // Objects of an earlier test.
	for _, name := range extensions {
		h := &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{Name: name}}
		h.Spec.ClientConfig = runtimev1.ClientConfig{URL: "https://" + name + ".test/"}
		h.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
		h.Spec.DeadlineSeconds = 60
		w.Create(h)
		w.hooks = append(w.hooks, h)
	}
	desired, err := children.Machine(w.sm, "", time.Now(), nil)
	w.Must(err)
	desired.SetFinalizers([]string{clusterv1.MachineFinalizer})
	w.Create(desired)
	w.machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: desired.GetName()}}
	w.Read(w.machine)
	w.status(func(s *clusterv1.MachineStatus) { s.NodeRef.Name = "box-node" })
	return w
}

// status updates the Machine's status as Cluster API does.
func (w *hookWorld) status(change func(*clusterv1.MachineStatus)) {
	w.Helper()
	w.Read(w.machine)
	before := w.machine.DeepCopy()
	change(&w.machine.Status)
	w.Must(w.Client.Status().Patch(w.Context(), w.machine, client.MergeFrom(before)))
}

// leave deletes the Machine. The time counts from when Cluster API waits for our hook.
func (w *hookWorld) leave() {
	w.Helper()
	w.Must(w.Client.Delete(w.Context(), w.machine))
	w.Read(w.machine)
	w.clock = clocktesting.NewFakePassiveClock(w.machine.DeletionTimestamp.Time)
}

// admit admits the departure of a Machine that another client has deleted, like the planner.
func (w *hookWorld) admit() {
	w.Helper()
	if !w.Read(w.machine) || !children.MadeByUs(w.machine) || !children.Held(w.machine, w.clock.Now()) {
		return
	}
	sm, cluster := w.sm.DeepCopy(), w.cluster.DeepCopy()
	if !w.Read(sm) {
		sm = nil
	}
	if !w.Read(cluster) {
		cluster = nil
	}
	if children.Exempt(sm, cluster) {
		return
	}
	d := v1alpha1.NewDeparture(v1alpha1.DeletedByOthers, w.clock.Now(), "a")
	if sm != nil && !sm.DeletionTimestamp.IsZero() {
		d.Reason = v1alpha1.ScheduledMachineDeleted
	}
	record := func(m *clusterv1.Machine) { children.SetDeparture(m, d) }
	if err := actuate.New(w.Client).EditLocked(w.Context(), w.machine, record); !apierrors.IsConflict(err) {
		w.Must(err)
	}
}

// restart starts a new manager without state in memory.
func (w *hookWorld) restart() {
	c := w.Recorded(w.reads)
	w.woken = make(chan types.NamespacedName, 100)
	caller, woken := leaving.New(w.clock), w.woken
	caller.Start(w.Context(), func(machine types.NamespacedName) { woken <- machine })
	w.r = &departure.HookReconciler{
		Clock: w.clock, Reader: c, Live: c, Actuate: actuate.New(c), Recorder: w.recorder, Extensions: w, HookCaller: caller,
	}
}

// settle reconciles until all extensions have responded and nothing is written. It returns the delay until the
// next reconcile. After an error it starts a new manager.
func (w *hookWorld) settle() time.Duration {
	w.Helper()
	if w.r == nil {
		w.restart()
	}
	if !w.planned {
		w.admit()
	}
	for range 10 {
		before, n := w.progress(), len(w.Writes)
		res, err := w.reconcile()
		if err != nil {
			w.restart()
			continue
		}
		if slices.Equal(before, w.progress()) && len(w.Writes) == n {
			w.Read(w.machine)
			return res.RequeueAfter
		}
	}
	w.Fatalf("does not settle: %v", w.Writes)
	return 0
}

func (w *hookWorld) reconcile() (ctrl.Result, error) {
	return w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.machine)})
}

// progress returns the state of all calls when none is open.
func (w *hookWorld) progress() (all []leaving.Progress) {
	for _, h := range w.hooks {
		for _, phase := range []hooksv1.Phase{hooksv1.BeforeDrain, hooksv1.BeforeTermination} {
			q := leaving.CallKey{Machine: w.machine.UID, Step: h.UID, Phase: string(phase)}
			for w.r.HookCaller.Progress(q, h.Generation).Open {
				<-w.woken
			}
			all = append(all, w.r.HookCaller.Progress(q, h.Generation))
		}
	}
	return all
}

// Call implements Extensions.
func (w *hookWorld) Call(_ context.Context, h *v1alpha1.MachineDeletionHook, req *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf("%s %s %s %s", h.Name, req.Phase, req.Trigger, req.ScheduledMachine))
	if len(req.Machine.ManagedFields) > 0 {
		w.Error("managed fields are nothing for extensions")
	}
	answer := &hooksv1.BeforeMachineDeleteResponse{SkipDrain: h.Name == "b-operator", SkipVolumeDetachWait: h.Name == "c-storage"}
	answer.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	answer.SetRetryAfterSeconds(w.answers[h.Name])
	answer.SetMessage(w.says[h.Name])
	return answer, nil
}

// Forget implements Extensions.
func (w *hookWorld) Forget(types.UID) {}

// newCalls returns the calls since the previous one, sorted.
func (w *hookWorld) newCalls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	slices.Sort(calls)
	return calls
}

// waits returns the condition of a Machine that waits.
func (w *hookWorld) waits() string {
	c := conditions.Get(w.machine, v1alpha1.ReadyForDeletionCondition)
	if c == nil {
		return ""
	}
	return fmt.Sprint(c.Status, " ", c.Reason, ": ", c.Message)
}

// held returns our hooks on the Machine.
func (w *hookWorld) held() string {
	var held []string
	for key := range w.machine.Annotations {
		if prefix, ours := strings.CutSuffix(key, ".delete.hook.machine.cluster.x-k8s.io/5spot"); ours {
			held = append(held, prefix)
		}
	}
	slices.Sort(held)
	return strings.Join(held, " ")
}

func TestNoExtensionIsCalled(t *testing.T) {
	w := newHookWorld(t)
	w.leave()
	w.settle()
	if diff := cmp.Diff([]string{"patch Machine"}, w.Writes); diff != "" || w.held() != "" {
		t.Errorf("without an extension the Machine goes after one write, held by %q: -want, +got:\n%s", w.held(), diff)
	}
}

func TestExtensionsAreCalledInParallel(t *testing.T) {
	w := newHookWorld(t, "b-operator", "a-lb")
	w.answers = map[string]int32{"a-lb": 5, "b-operator": 7}
	w.reads.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if hooks, ok := list.(*v1alpha1.MachineDeletionHookList); ok {
			slices.Reverse(hooks.Items) // A cache has no order.
		}
		return err
	}
	w.leave()
	if again := w.settle(); again != 5*time.Second || w.held() != "pre-drain pre-terminate" {
		t.Errorf("asks again in %v, held by %q", again, w.held())
	}
	if diff := cmp.Diff([]string{"a-lb BeforeDrain External box", "b-operator BeforeDrain External box"}, w.newCalls()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if want := "False WaitingForExtension: a-lb: the extension requested a wait; b-operator: the extension requested a wait"; w.waits() != want {
		t.Errorf("the condition is %s, want %s", w.waits(), want)
	}
	w.answers = nil
	w.clock.SetTime(w.clock.Now().Add(5 * time.Second))
	if again := w.settle(); again != 2*time.Second {
		t.Errorf("asks the other one again in %v", again)
	}
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	w.settle()
	if diff := cmp.Diff([]string{"a-lb BeforeDrain External box", "b-operator BeforeDrain External box"}, w.newCalls()); diff != "" {
		t.Errorf("calls: -want, +got:\n%s", diff)
	}
	if w.held() != "pre-terminate" {
		t.Errorf("before the drain the Machine is held by %q", w.held())
	}
	if _, skip := w.machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !skip {
		t.Error("the operator moved the pods itself, and the drain is not skipped")
	}
	w.drained()
	w.settle()
	if diff := cmp.Diff([]string{"a-lb BeforeTermination External box", "b-operator BeforeTermination External box"}, w.newCalls()); diff != "" || w.held() != "" {
		t.Errorf("held by %q; -want, +got:\n%s", w.held(), diff)
	}
	w.Writes = nil
	if w.settle(); len(w.Writes) != 0 {
		t.Errorf("it does not rest: %v", w.Writes)
	}
}

// TestAnExtensionSkipsWaits checks extensions that move pods or volumes themselves. Only the wait in the
// response is skipped. Without a drain workloads are killed, and an attached volume blocks the pod that needs
// it.
func TestAnExtensionSkipsWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		extensions    []string
		drain, detach bool
	}{
		"Nothing":      {extensions: []string{"a-lb"}},
		"Drain":        {extensions: []string{"a-lb", "b-operator"}, drain: true},
		"VolumeDetach": {extensions: []string{"a-lb", "c-storage"}, detach: true},
		"Both":         {extensions: []string{"b-operator", "c-storage"}, drain: true, detach: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t, tc.extensions...)
			w.leave()
			w.settle()
			_, drain := w.machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
			_, detach := w.machine.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]
			if w.held() != "pre-terminate" || drain != tc.drain || detach != tc.detach {
				t.Errorf("held by %q; the drain is skipped: %t, the wait for volumes: %t; want %t, %t", w.held(), drain, detach, tc.drain, tc.detach)
			}
		})
	}
}

// drained sets the status in which Cluster API has drained the Node and waits for the pre-terminate hook.
func (w *hookWorld) drained() {
	w.Helper()
	w.status(func(s *clusterv1.MachineStatus) {
		s.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreTerminateHookStartTime: metav1.NewTime(w.clock.Now())}
	})
}

func TestEachExtensionHasItsDeadline(t *testing.T) {
	w := newHookWorld(t, "a-lb", "b-operator")
	w.Edit(w.hooks[1], func() { w.hooks[1].Spec.DeadlineSeconds = 90 })
	w.answers = map[string]int32{"a-lb": 50, "b-operator": 50}
	w.leave()
	for i, want := range []time.Duration{50 * time.Second, 10 * time.Second, 30 * time.Second} {
		again := w.settle()
		if again != want {
			t.Fatalf("%d: asks again in %v, want %v", i, again, want)
		}
		w.clock.SetTime(w.clock.Now().Add(again))
	}
	w.settle()
	if w.held() != "pre-terminate" {
		t.Errorf("after 90 seconds, not 150, the Machine is held by %q", w.held())
	}
	if _, skip := w.machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; skip {
		t.Error("the operator did not move the pods, and they are not drained")
	}
	want := "a-lb missed its deadline, spec.deadlineSeconds 60: the extension requested a wait; " +
		"b-operator missed its deadline, spec.deadlineSeconds 90: the extension requested a wait"
	if got := w.waits(); got != "True StepsSkipped: "+want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestARestartCallsAgain checks that deadlines continue after a restart, and that an extension still gets one
// call after its deadline.
func TestARestartCallsAgain(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers["a-lb"] = 50
	w.leave()
	w.settle()
	w.clock.SetTime(w.clock.Now().Add(45 * time.Second))
	w.restart()
	if again := w.settle(); again != 15*time.Second || len(w.newCalls()) != 2 {
		t.Errorf("holds for %v more, want 15 s", again)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.restart()
	if again := w.settle(); again != 10*time.Second || len(w.newCalls()) != 1 {
		t.Errorf("after an hour without a call it holds the Machine for %v more, want 10 s", again)
	}
	w.answers["a-lb"] = 0
	w.restart()
	if w.settle(); w.held() != "pre-terminate" || w.waits() != "True StepsCompleted: " {
		t.Errorf("held by %q, %s", w.held(), w.waits())
	}
}

// TestAnExtensionIsCalledAfterItsRetryTime changes the message with each call, as a countdown does. Each message is
// written once, and no event of the Machine causes a call in between.
func TestAnExtensionIsCalledAfterItsRetryTime(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers["a-lb"] = 1
	w.leave()
	for i := range 5 {
		w.says["a-lb"] = fmt.Sprint(i, " connections")
		w.Writes = nil
		if again := w.settle(); again != time.Second {
			t.Errorf("asks again in %v", again)
		}
		w.status(func(s *clusterv1.MachineStatus) { s.ObservedGeneration++ })
		w.settle()
		if calls := w.newCalls(); len(calls) != 1 {
			t.Errorf("second %d: calls %q, want one call", i, calls)
		}
		want := []string{"patch Machine status"}
		if diff := cmp.Diff(want, w.Writes); diff != "" {
			t.Errorf("second %d: -want, +got:\n%s", i, diff)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
	w.answers["a-lb"] = 0
	w.settle()
	close(w.recorder.Events)
	var told []string
	for e := range w.recorder.Events {
		told = append(told, e)
	}
	if diff := cmp.Diff([]string{"Normal WaitingForExtension a-lb: 0 connections"}, told); diff != "" {
		t.Errorf("an Event is for what changes, not for each number: -want, +got:\n%s", diff)
	}
}

// TestAnExtensionThatChanges checks that a changed extension is called again. A response from another address
// or with other settings does not count.
func TestAnExtensionThatChanges(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers["a-lb"] = 50
	w.leave()
	w.settle()
	w.answers["a-lb"] = 0
	w.Edit(w.hooks[0], func() { w.hooks[0].Spec.Settings = map[string]string{"pool": "b"} })
	if w.settle(); w.held() != "pre-terminate" {
		t.Errorf("held by %q", w.held())
	}
}

// TestADeletedExtension checks that a deleted extension holds no Machine, also during its deletion.
func TestADeletedExtension(t *testing.T) {
	for name, goes := range map[string]func(*hookWorld){
		"deleted": func(w *hookWorld) { w.Must(w.Client.Delete(w.Context(), w.hooks[0])) },
		"being deleted": func(w *hookWorld) {
			w.Edit(w.hooks[0], func() { w.hooks[0].Finalizers = []string{"test/hold"} })
			w.Must(w.Client.Delete(w.Context(), w.hooks[0]))
			w.Cleanup(func() {
				_ = w.Client.Patch(context.WithoutCancel(w.Context()), w.hooks[0], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			})
		},
		"not for this namespace any more": func(w *hookWorld) {
			w.Edit(w.hooks[0], func() {
				w.hooks[0].Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t, "a-lb")
			w.answers["a-lb"] = 50
			w.leave()
			w.settle()
			goes(w)
			if w.settle(); w.held() != "" {
				t.Errorf("held by %q", w.held())
			}
		})
	}
}

// TestARefusedWriteIsTriedOncePerBackOff rejects every write with a conflict, as a webhook may.
func TestARefusedWriteIsTriedOncePerBackOff(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers["a-lb"] = 1
	w.leave()
	w.admit()
	w.Fail = func(int) (before, after error) {
		return apierrors.NewConflict(clusterv1.GroupVersion.WithResource("machines").GroupResource(), w.machine.Name, errors.New("no")), nil
	}
	w.restart()
	for range 360 {
		if res, err := w.reconcile(); err == nil && res.RequeueAfter <= 0 {
			t.Fatal("the write is not tried again")
		}
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	}
	if len(w.Writes) > 30 {
		t.Errorf("%d tries in an hour in which the Machine is woken every 10 s", len(w.Writes))
	}
	w.Fail = nil
	w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
	w.answers["a-lb"] = 0
	if w.settle(); w.held() != "pre-terminate" {
		t.Errorf("once it is not refused any more, it is held by %q", w.held())
	}
}

// TestNoExtensionHoldsTheMachine also checks that no step runs, because a step might request pods to be moved.
func TestNoExtensionHoldsTheMachine(t *testing.T) {
	for name, change := range map[string]func(*hookWorld){
		"cluster is deleted": func(w *hookWorld) {
			w.Edit(w.cluster, func() { w.cluster.Finalizers = []string{"test/hold"} })
			w.Must(w.Client.Delete(w.Context(), w.cluster))
		},
		"no Node":     func(w *hookWorld) { w.status(func(s *clusterv1.MachineStatus) { s.NodeRef.Name = "" }) },
		"kill switch": func(w *hookWorld) { w.Edit(w.sm, func() { w.sm.Spec.KillSwitch = true }) },
		"owner": func(w *hookWorld) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
		},
		"unreachable": func(w *hookWorld) {
			w.nodeUnknown(clusterv1.MachineNodeReadyUnknownReason)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t, "a-lb")
			w.answers = map[string]int32{"a-lb": 50}
			change(w)
			w.leave()
			w.restart()
			step := &balancers{says: leaving.Verdict{Holds: true, Reason: v1alpha1.WaitingForOperatorsReason}}
			w.r.Steps = leaving.Steps{step}
			w.settle()
			if w.held() != "" || step.looks > 0 || step.forgotten == 0 {
				t.Errorf("held by %q, looked at %d times, forgotten %d times", w.held(), step.looks, step.forgotten)
			}
		})
	}
}

// nodeUnknown sets NodeReady to Unknown for a reason of Cluster API.
func (w *hookWorld) nodeUnknown(reason string) {
	w.status(func(s *clusterv1.MachineStatus) {
		s.Conditions = []metav1.Condition{{
			Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, Reason: reason, LastTransitionTime: metav1.Now(),
		}}
	})
}

// TestAnUnreadNodeKeepsItsHooks checks that a lost connection to the workload cluster, or one failed read of the
// Node, removes no hook. The deadline of the extension still bounds the wait.
func TestAnUnreadNodeKeepsItsHooks(t *testing.T) {
	for _, reason := range []string{clusterv1.MachineNodeConnectionDownReason, clusterv1.MachineNodeInternalErrorReason} {
		t.Run(reason, func(t *testing.T) {
			w := newHookWorld(t, "a-lb")
			w.answers = map[string]int32{"a-lb": 50}
			w.nodeUnknown(reason)
			w.leave()
			w.restart()
			if w.settle(); w.held() != "pre-drain pre-terminate" {
				t.Errorf("held by %q", w.held())
			}
			w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
			if w.settle(); w.held() != "pre-terminate" {
				t.Errorf("after the deadline, held by %q", w.held())
			}
		})
	}
}

func TestTriggerOfADeparture(t *testing.T) {
	on := func(reason v1alpha1.DepartureReason) func(*hookWorld) {
		return func(w *hookWorld) {
			w.Edit(w.machine, func() {
				d := v1alpha1.NewDeparture(reason, time.Now(), "a")
				d.MachineUID = w.machine.UID
				w.machine.Annotations[v1alpha1.DepartureAnnotation] = d.String()
			})
		}
	}
	for name, tc := range map[string]struct {
		change func(*hookWorld)
		want   hooksv1.Trigger
	}{
		"nothing on record":                {func(*hookWorld) {}, hooksv1.TriggerExternal},
		"deleted by others, window closed": {func(w *hookWorld) { w.Edit(w.sm, func() { w.sm.Spec.Schedule.HoursOfDay = nil }) }, hooksv1.TriggerExternal},
		"the window closed":                {on(v1alpha1.WindowClosed), hooksv1.TriggerSchedule},
		"its object goes":                  {on(v1alpha1.ScheduledMachineDeleted), hooksv1.TriggerSchedule},
		"it is replaced":                   {on(v1alpha1.MachineReplaced), hooksv1.TriggerExternal},
		"deleted past a gone owner": {func(w *hookWorld) {
			w.Edit(w.sm, func() { w.sm.Finalizers = []string{"test/hold"} })
			w.Must(w.Client.Delete(w.Context(), w.sm))
		}, hooksv1.TriggerSchedule},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t, "a-lb")
			tc.change(w)
			w.leave()
			w.settle()
			if want := "a-lb BeforeDrain " + string(tc.want) + " box"; !slices.Contains(w.newCalls(), want) {
				t.Errorf("not asked %q", want)
			}
		})
	}
}

// TestAnOwnersRequestIsNotDelayed removes our hooks as package actuate does before the deletion of the Machine. A test
// of crowd checks that the extension is notified.
func TestAnOwnersRequestIsNotDelayed(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers = map[string]int32{"a-lb": 50}
	w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
	eject := actuate.New(w.Client).For(actuate.Intent{Reason: v1alpha1.ReclaimedByOwner, At: time.Now()})
	_, err := eject.Remove(t.Context(), &children.Set{Machine: w.machine}, children.HonourHooks)
	w.Must(err)
	w.leave()
	w.Read(w.machine)
	if w.held() != "" {
		t.Errorf("held by %q", w.held())
	}
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("nothing is left to write: %v", w.Writes)
	}
}

// TestWhereExtensionsAre checks the validation of a MachineDeletionHook by the API server.
func TestWhereExtensionsAre(t *testing.T) {
	f := server.Fixture(t)
	service := runtimev1.ServiceReference{Namespace: "tools", Name: "lb"}
	for name, tc := range map[string]struct {
		config runtimev1.ClientConfig
		want   string
	}{
		"URL":          {runtimev1.ClientConfig{URL: "https://lb.test/api"}, ""},
		"Service":      {runtimev1.ClientConfig{Service: service}, ""},
		"Both":         {runtimev1.ClientConfig{URL: "https://lb.test/", Service: service}, "set either url or service"},
		"Neither":      {runtimev1.ClientConfig{CABundle: []byte("x")}, "set either url or service"},
		"Plain":        {runtimev1.ClientConfig{URL: "http://lb.test/"}, "url must be https"},
		"NoURL":        {runtimev1.ClientConfig{URL: "lb"}, "url must be https"},
		"WithPassword": {runtimev1.ClientConfig{URL: "https://me:secret@lb.test/"}, "url must be https"},
		"WithQuery":    {runtimev1.ClientConfig{URL: "https://lb.test/?a=b"}, "url must be https"},
		"WithFragment": {runtimev1.ClientConfig{URL: "https://lb.test/#a"}, "url must be https"},
		"NoPort":       {runtimev1.ClientConfig{Service: runtimev1.ServiceReference{Namespace: "tools", Name: "lb", Port: new(int32(65536))}}, "service.port must be between"},
	} {
		h := &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{GenerateName: "hook-"}, Spec: v1alpha1.MachineDeletionHookSpec{ClientConfig: tc.config}}
		err := f.Client.Create(t.Context(), h, client.DryRunAll)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
		if err == nil && (h.Spec.FailurePolicy != v1alpha1.FailurePolicyFail || h.Spec.TimeoutSeconds != 10 || h.Spec.DeadlineSeconds != 300) {
			t.Errorf("%s: defaults are %+v", name, h.Spec)
		}
	}
}

func TestAPausedMachineIsUnchanged(t *testing.T) {
	w := newHookWorld(t)
	w.Edit(w.cluster, func() { w.cluster.Spec.Paused = new(true) })
	w.leave()
	if w.settle(); len(w.Writes) != 0 {
		t.Errorf("%v", w.Writes)
	}
}

// TestCrashPoints stops the controller before each of its writes, and after each with the response lost, and
// restarts it. Every run must end in the same state.
func TestCrashPoints(t *testing.T) { testenv.CrashPoints(t, 4, story) }

// story is a departure with an extension, recorded at three points.
func story(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
	t.Helper()
	w := newHookWorld(t, "b-operator")
	w.Fail = fail
	record := func() {
		w.restart()
		w.settle()
		c := conditions.Get(w.machine, v1alpha1.ReadyForDeletionCondition)
		_, skip := w.machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
		stations = append(stations, fmt.Sprint(w.held(), skip, c.Status, c.Reason, c.Message))
	}
	w.answers["b-operator"] = 5
	w.leave()
	record()
	w.answers["b-operator"] = 0
	record()
	w.drained()
	record()
	return stations, len(w.Writes)
}

// TestARefusedStatusHoldsNoMachine has a webhook that refuses every change of a status.
func TestARefusedStatusHoldsNoMachine(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.leave()
	w.admit()
	w.Fail = func(n int) (before, after error) {
		if strings.HasSuffix(w.Writes[n], "status") {
			return apierrors.NewForbidden(clusterv1.GroupVersion.WithResource("machines").GroupResource(), w.machine.Name, errors.New("a webhook refuses it")), nil
		}
		return nil, nil
	}
	w.restart()
	for range 5 {
		_, _ = w.reconcile()
		w.progress()
	}
	if w.Read(w.machine); w.held() != "pre-terminate" {
		t.Errorf("it is held by %q", w.held())
	}
}

// TestAPauseRenewsTheDeadlineOfAnExtension pauses a Cluster until after the deadline of an extension.
func TestAPauseRenewsTheDeadlineOfAnExtension(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers["a-lb"] = 50
	w.leave()
	w.settle()
	w.Edit(w.cluster, func() { w.cluster.Spec.Paused = new(true) })
	w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
	w.settle()
	w.Edit(w.cluster, func() { w.cluster.Spec.Paused = nil })
	w.Read(w.sm)
	conditions.Set(w.sm, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason, LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	w.settle()
	for _, tc := range []struct {
		after time.Duration
		held  string
	}{{59 * time.Second, "pre-drain pre-terminate"}, {time.Second, "pre-terminate"}} {
		w.clock.SetTime(w.clock.Now().Add(tc.after))
		if w.settle(); w.held() != tc.held {
			t.Errorf("it is held by %q, want %q: %s", w.held(), tc.held, w.waits())
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package machinehook_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/machinehook"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// world is a Machine of a ScheduledMachine that is being deleted, and extensions
// that answer as the test says. Cluster API's part is played by the test.
type world struct {
	*testenv.Fixture
	cluster *clusterv1.Cluster
	sm      *v1alpha1.ScheduledMachine
	machine *clusterv1.Machine
	clock   *clocktesting.FakePassiveClock
	// answers is for how many seconds each extension asks to wait.
	answers map[string]int32
	asked   []string
	// filter is the manager's watch filter.
	filter string
	r      *machinehook.Reconciler
}

func newWorld(t *testing.T, extensions ...string) *world {
	t.Helper()
	ns := server.Namespace(t)
	w := &world{Fixture: server.Fixture(t), answers: map[string]int32{}}
	w.cluster, w.sm = testenv.Cluster(ns), testenv.ScheduledMachine(ns, "box")
	w.Create(w.cluster, w.sm)
	w.Must(w.Client.DeleteAllOf(t.Context(), &v1alpha1.MachineDeletionHook{})) // An earlier test's.
	for _, name := range extensions {
		h := &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{Name: name}}
		h.Spec.ClientConfig = runtimev1.ClientConfig{URL: "https://" + name + ".test/"}
		h.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
		h.Spec.DeadlineSeconds = 60
		w.Create(h)
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

// status writes the Machine's status as Cluster API does.
func (w *world) status(change func(*clusterv1.MachineStatus)) {
	w.Helper()
	w.Read(w.machine)
	before := w.machine.DeepCopy()
	change(&w.machine.Status)
	w.Must(w.Client.Status().Patch(w.Context(), w.machine, client.MergeFrom(before)))
}

// leave deletes the Machine; the clock begins when Cluster API waits for our hook.
func (w *world) leave() {
	w.Helper()
	w.Must(w.Client.Delete(w.Context(), w.machine))
	w.Read(w.machine)
	w.clock = clocktesting.NewFakePassiveClock(w.machine.DeletionTimestamp.Time)
}

// settle reconciles, each time with a new reconciler, until nothing is written, and
// returns when to look again.
func (w *world) settle() time.Duration {
	w.Helper()
	for range 10 {
		n := len(w.Writes)
		c := w.Recorded(interceptor.Funcs{})
		w.r = (&machinehook.Reconciler{
			Clock: w.clock, Reader: c, Live: c, Actuate: actuate.New(c), Recorder: events.NewFakeRecorder(10), Call: w.call,
		}).WithWatchFilter(w.filter)
		res, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.machine)})
		if err == nil && len(w.Writes) == n {
			w.Read(w.machine)
			return res.RequeueAfter
		}
	}
	w.Fatalf("does not settle: %v", w.Writes)
	return 0
}

func (w *world) call(_ context.Context, h *v1alpha1.MachineDeletionHook, req *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error) {
	w.asked = append(w.asked, fmt.Sprintf("%s %s %s %s", h.Name, req.Phase, req.Trigger, req.ScheduledMachine))
	answer := &hooksv1.BeforeMachineDeleteResponse{SkipDrain: h.Name == "b-operator"}
	answer.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	answer.SetRetryAfterSeconds(w.answers[h.Name])
	return answer, nil
}

// held are our hooks on the Machine.
func (w *world) held() string {
	var held []string
	for key := range w.machine.Annotations {
		if prefix, ours := strings.CutSuffix(key, ".delete.hook.machine.cluster.x-k8s.io/5spot"); ours {
			held = append(held, prefix)
		}
	}
	slices.Sort(held)
	return strings.Join(held, " ")
}

func TestNobodyIsAsked(t *testing.T) {
	w := newWorld(t)
	w.leave()
	w.settle()
	if diff := cmp.Diff([]string{"patch Machine"}, w.Writes); diff != "" || w.held() != "" {
		t.Errorf("without an extension the Machine goes after one write, held by %q: -want, +got:\n%s", w.held(), diff)
	}
}

func TestExtensionsAreAskedInOrder(t *testing.T) {
	w := newWorld(t, "b-operator", "a-lb")
	w.answers = map[string]int32{"a-lb": 5, "b-operator": 7}
	w.leave()
	if again := w.settle(); again != 5*time.Second || w.held() != "pre-drain pre-terminate" {
		t.Errorf("asks again in %v, held by %q", again, w.held())
	}
	if c := conditions.Get(w.machine, v1alpha1.ReadyToLeaveCondition); c == nil || c.Status != metav1.ConditionFalse || c.Message != "a-lb: it asks to wait" {
		t.Errorf("people must see who holds it: %v", c)
	}
	w.answers["a-lb"] = 0
	if again := w.settle(); again != 7*time.Second {
		t.Errorf("asks again in %v", again)
	}
	w.answers["b-operator"] = 0
	w.settle()
	if w.held() != "pre-terminate" {
		t.Errorf("before the drain the Machine is held by %q", w.held())
	}
	if _, skip := w.machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !skip {
		t.Error("the operator moved the pods itself, and the drain is not skipped")
	}
	w.asked = nil
	w.status(func(s *clusterv1.MachineStatus) {
		s.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreTerminateHookStartTime: metav1.NewTime(w.clock.Now())}
	})
	w.settle()
	if diff := cmp.Diff([]string{"a-lb BeforeTermination External box", "b-operator BeforeTermination External box"}, slices.Compact(w.asked)[:2]); diff != "" || w.held() != "" {
		t.Errorf("held by %q; -want, +got:\n%s", w.held(), diff)
	}
	w.Writes = nil
	if w.settle(); len(w.Writes) != 0 {
		t.Errorf("it does not rest: %v", w.Writes)
	}
}

func TestAnExtensionHasItsDeadline(t *testing.T) {
	w := newWorld(t, "a-lb", "b-operator")
	w.answers = map[string]int32{"a-lb": 50, "b-operator": 50}
	w.leave()
	for _, want := range []time.Duration{50 * time.Second, 10 * time.Second, 50 * time.Second, 10 * time.Second} {
		again := w.settle()
		if again != want {
			t.Fatalf("asks again in %v, want %v", again, want)
		}
		w.clock.SetTime(w.clock.Now().Add(again))
	}
	w.settle()
	if w.held() != "pre-terminate" {
		t.Errorf("after two minutes the Machine is held by %q", w.held())
	}
}

func TestNobodyIsWaitedFor(t *testing.T) {
	for name, change := range map[string]func(*world){
		"cluster is deleted": func(w *world) {
			w.Edit(w.cluster, func() { w.cluster.Finalizers = []string{"test/hold"} })
			w.Must(w.Client.Delete(w.Context(), w.cluster))
		},
		"no Node":     func(w *world) { w.status(func(s *clusterv1.MachineStatus) { s.NodeRef.Name = "" }) },
		"kill switch": func(w *world) { w.Edit(w.sm, func() { w.sm.Spec.KillSwitch = true }) },
		"owner": func(w *world) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
		},
		"unreachable": func(w *world) {
			w.status(func(s *clusterv1.MachineStatus) {
				s.Conditions = []metav1.Condition{{
					Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, Reason: "NodeReadyUnknown", LastTransitionTime: metav1.Now(),
				}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a-lb")
			w.answers = map[string]int32{"a-lb": 50}
			change(w)
			w.leave()
			w.settle()
			if w.held() != "" {
				t.Errorf("held by %q", w.held())
			}
		})
	}
}

func TestWhyItLeaves(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ScheduledMachine)
		want   hooksv1.Trigger
	}{
		"in its window": {func(*v1alpha1.ScheduledMachine) {}, hooksv1.TriggerExternal},
		"outside":       {func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = nil }, hooksv1.TriggerSchedule},
		"the schedule is off": {func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.Schedule.HoursOfDay, sm.Spec.Schedule.Enabled = nil, new(false)
		}, hooksv1.TriggerExternal},
		"its object goes, too": {func(sm *v1alpha1.ScheduledMachine) { sm.Finalizers = []string{"test/hold"} }, hooksv1.TriggerSchedule},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a-lb")
			w.Edit(w.sm, func() { tc.change(w.sm) })
			if len(w.sm.Finalizers) > 0 {
				w.Must(w.Client.Delete(t.Context(), w.sm))
			}
			w.leave()
			w.settle()
			if want := "a-lb BeforeDrain " + string(tc.want) + " box"; len(w.asked) == 0 || w.asked[0] != want {
				t.Errorf("asked %q, want %q", w.asked, want)
			}
		})
	}
}

// TestTheOwnerIsNotHeldUp has package actuate take our hooks off before the Machine
// is deleted; the extension is told all the same.
func TestTheOwnerIsNotHeldUp(t *testing.T) {
	w := newWorld(t, "a-lb")
	w.answers = map[string]int32{"a-lb": 50}
	w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
	w.Must(actuate.New(w.Client).Remove(t.Context(), actuate.Children{Machine: w.machine}, actuate.HonourHooks))
	w.leave()
	w.Read(w.machine)
	if w.held() != "" {
		t.Errorf("held by %q", w.held())
	}
	w.settle()
	if diff := cmp.Diff([]string{"a-lb BeforeDrain EmergencyReclaim box"}, w.asked); diff != "" || len(w.Writes) != 0 {
		t.Errorf("%v; -want, +got:\n%s", w.Writes, diff)
	}
}

// TestWhereExtensionsAre has the API server judge what a MachineDeletionHook says.
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

func TestPausedIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.Edit(w.cluster, func() { w.cluster.Spec.Paused = new(true) })
	w.leave()
	if w.settle(); len(w.Writes) != 0 {
		t.Errorf("%v", w.Writes)
	}
}

// TestCrashPoints stops the controller before each of its writes, and after each
// with the reply lost, and starts it anew. Every run ends as the one without.
func TestCrashPoints(t *testing.T) { testenv.CrashPoints(t, 5, story) }

// story is a departure with an extension, told at three stations.
func story(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
	t.Helper()
	w := newWorld(t, "b-operator")
	w.Fail = fail
	tell := func() {
		w.settle()
		c := conditions.Get(w.machine, v1alpha1.ReadyToLeaveCondition)
		_, skip := w.machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
		stations = append(stations, fmt.Sprint(w.held(), skip, c.Status, c.Reason, c.Message))
	}
	w.answers["b-operator"] = 5
	w.leave()
	tell()
	w.answers["b-operator"] = 0
	tell()
	w.status(func(s *clusterv1.MachineStatus) {
		s.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreTerminateHookStartTime: metav1.NewTime(w.clock.Now())}
	})
	tell()
	return stations, len(w.Writes)
}

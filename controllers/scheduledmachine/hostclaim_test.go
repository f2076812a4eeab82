// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// on sets the infrastructure spec of a ScheduledMachine, which names its host.
func on(spec string) func(*v1alpha1.ScheduledMachine) {
	return func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.InfrastructureSpec.Spec = runtime.RawExtension{Raw: []byte(spec)}
	}
}

// beside returns the world of another ScheduledMachine with the same hours, in a namespace and in the same manager.
func (w *world) beside(namespace, name string, change func(*v1alpha1.ScheduledMachine)) *world {
	w.Helper()
	o := *w
	o.sm = testenv.ScheduledMachine(namespace, name)
	o.sm.Spec.Schedule = *w.sm.Spec.Schedule.DeepCopy()
	change(o.sm)
	o.Create(o.sm)
	return &o
}

func (w *world) claimed(reason string, parts ...string) {
	w.Helper()
	c := conditions.Get(w.sm, v1alpha1.HostClaimedCondition)
	if reason == "" {
		if c != nil {
			w.Fatalf("%s: %+v", w.sm.Name, c)
		}
		return
	}
	if c == nil || c.Reason != reason || c.Status != metav1.ConditionTrue {
		w.Fatalf("%s: %+v, want %s", w.sm.Name, c, reason)
	}
	for _, part := range parts {
		if !strings.Contains(c.Message, part) {
			w.Errorf("%s: %q lacks %q", w.sm.Name, c.Message, part)
		}
	}
}

// countEvents returns the number of Events with a reason since the last call.
func (w *world) countEvents(reason string) int {
	return len(slices.DeleteFunc(w.events(), func(e string) bool { return !strings.Contains(e, " "+reason+" ") }))
}

// hostNamed returns status.host of a ScheduledMachine that has named the host of desk since an instant.
func hostNamed(sm *v1alpha1.ScheduledMachine, since time.Time) *v1alpha1.HostStatus {
	kind := sm.Spec.InfrastructureSpec.Kind + ".infrastructure.cluster.x-k8s.io"
	return &v1alpha1.HostStatus{
		Source: "kind " + kind, ClaimTime: new(metav1.NewTime(since)),
		Names: []v1alpha1.HostName{{Kind: "address", Scope: kind, Value: "192.0.2.42:22"}},
	}
}

const desk = `{"address":"192.0.2.42","port":22}`

func TestASecondClaimOnAHost(t *testing.T) {
	a := newWorld(t, on(desk))
	b := a.beside(a.sm.Namespace, "box2", on(`{"address":"192.0.2.42"}`))
	a.running()
	b.settle()
	b.want(v1alpha1.PhasePending, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.HostClaimedReason)
	b.claimed(v1alpha1.ClaimedByAnotherReason, "address 192.0.2.42:22", "ScheduledMachine box,", "names another host")
	a.settle()
	a.claimed(v1alpha1.ClaimedFirstReason, "address 192.0.2.42:22", "ScheduledMachine box2")
	a.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
	if _, made := b.machine(); made {
		t.Fatal("a second machine was made on one host")
	}
	if n := a.countEvents(v1alpha1.HostClaimedEvent); n != 2 {
		t.Errorf("%d events, want one on each", n)
	}
	a.Writes = nil
	a.settle()
	b.settle()
	if len(a.Writes) != 0 || a.countEvents(v1alpha1.HostClaimedEvent) != 0 {
		t.Errorf("what is settled writes nothing: %v", a.Writes)
	}

	// An edit applies at the next window: the host is in use until the machine has left.
	a.edit(on(`{"address":"192.0.2.43"}`))
	a.settle()
	b.settle()
	b.claimed(v1alpha1.ClaimedByAnotherReason)
	a.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20"} })
	a.settle()
	a.gone()
	a.settle()
	a.want(v1alpha1.PhaseInactive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InactiveReason)
	a.claimed("")
	b.settle()
	b.claimed("")
	if _, made := b.machine(); !made {
		t.Fatalf("the host is free, and nothing is made: %+v", b.sm.Status)
	}
}

func TestAClaimThatBecomesKnownLater(t *testing.T) {
	a := newWorld(t, on(desk))
	b := a.beside(a.sm.Namespace, "box2", on(`{"address":"192.0.2.43"}`))
	a.running()
	b.running()
	for _, w := range []*world{a, b} {
		m, _ := w.machine()
		before := m.DeepCopy()
		m.Spec.ProviderID = "remote://same"
		w.Must(w.Client.Patch(w.Context(), m, client.MergeFrom(before)))
		w.settle()
	}
	if st := a.sm.Status; st.ProviderID != "remote://same" {
		t.Fatalf("it was the first, and the only one: %+v", st)
	}
	if st := b.sm.Status; st.ProviderID != "" || !slices.Contains(st.Host.MachineNames, v1alpha1.HostName{Kind: "providerID", Scope: b.sm.Namespace, Value: "remote://same"}) {
		t.Fatalf("it is another's, and both are to know: %+v", st)
	}
	a.settle()
	b.settle()
	a.claimed(v1alpha1.ClaimedFirstReason, "providerID remote://same")
	b.claimed(v1alpha1.ClaimedByAnotherReason, "the running machine stays")
	for _, w := range []*world{a, b} {
		w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
		if m, ok := w.machine(); !ok || !m.DeletionTimestamp.IsZero() {
			t.Fatal("a machine that runs was taken away")
		}
	}
}

func TestACopyOfAnImageIsOnlySuspected(t *testing.T) {
	a := newWorld(t, on(desk))
	b := a.beside(a.sm.Namespace, "box2", on(`{"address":"192.0.2.43"}`))
	for _, w := range []*world{a, b} {
		w.running()
		m, _ := w.machine()
		before := m.DeepCopy()
		m.Status.NodeInfo = &corev1.NodeSystemInfo{MachineID: "0123456789abcdef0123456789abcdef"}
		w.Must(w.Client.Status().Patch(w.Context(), m, client.MergeFrom(before)))
		w.settle()
	}
	a.settle()
	for _, w := range []*world{a, b} {
		w.claimed(v1alpha1.DuplicateMachineIDReason, "0123456789abcdef0123456789abcdef", "copy of its image")
		w.edit(func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.MachineTemplate.Labels = map[string]string{"example.org/x": "y"}
		})
		w.settle()
		if m, _ := w.machine(); m.Labels["example.org/x"] != "y" {
			t.Error("both go on")
		}
	}
}

func TestAHostIsOneInAllNamespaces(t *testing.T) {
	a := newWorld(t, on(`{"address":"one-in-all.test"}`))
	a.running()
	o := newWorld(t, on(`{"address":"ONE-in-all.test.","port":22}`))
	o.clock.SetTime(a.clock.Now())
	o.settle()
	o.claimed(v1alpha1.ClaimedByAnotherReason, "of another namespace")
	if c := conditions.Get(o.sm, v1alpha1.HostClaimedCondition); strings.Contains(c.Message, a.sm.Namespace) {
		t.Errorf("names of another namespace are not an author's to read: %s", c.Message)
	}
	a.settle()
	a.claimed(v1alpha1.ClaimedFirstReason, "of another namespace")
}

func TestAnEditDoesNotComeFirst(t *testing.T) {
	a := newWorld(t, on(`{"address":"192.0.2.50"}`)) // The older object.
	b := a.beside(a.sm.Namespace, "box2", on(desk))
	later := monday.AddDate(0, 0, 520*7) // Than the API server's clock, which dates the objects.
	a.clock.SetTime(later)
	a.settle()
	b.settle() // Outside their windows.
	a.edit(on(desk))
	b.settle()
	b.claimed(v1alpha1.ClaimedFirstReason)
	a.settle()
	a.claimed(v1alpha1.ClaimedByAnotherReason)
	a.clock.SetTime(later.Add(time.Hour))
	a.settle()
	if _, made := a.machine(); made {
		t.Fatal("an edit took the host of another")
	}
	b.settle()
	if _, made := b.machine(); !made {
		t.Fatal("who came first goes on")
	}
}

// TestAReclaimWithholdsTheHost covers a request through either of two ScheduledMachines.
func TestAReclaimWithholdsTheHost(t *testing.T) {
	request := v1alpha1.ReclaimRecord{Node: "n", NodeUID: "u", Reason: "process-match: java", RequestedAt: "2025-01-20T10:00:00Z"}
	for name, asks := range map[string]func(a, b *world) (asked, other *world){
		"FirstWasAsked":  func(a, b *world) (*world, *world) { return a, b },
		"SecondWasAsked": func(a, b *world) (*world, *world) { return b, a },
	} {
		t.Run(name, func(t *testing.T) {
			a := newWorld(t, on(desk))
			b := a.beside(a.sm.Namespace, "box2", on(desk))
			a.running()
			b.settle()
			asked, other := asks(a, b)
			asked.edit(func(sm *v1alpha1.ScheduledMachine) {
				metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, request.String())
			})
			other.reconcile()
			want := v1alpha1.ReclaimRecord{Reason: request.Reason, RequestedAt: request.RequestedAt, PropagatedFrom: asked.sm.Name}
			got, ok := other.sm.ReclaimRequest()
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Fatalf("the request is propagated to the other object of the host (%v): -want, +got:\n%s", ok, diff)
			}
			for _, w := range []*world{asked, other} { // As package reclaim does at the end.
				w.edit(func(sm *v1alpha1.ScheduledMachine) {
					sm.Spec.Schedule.Enabled = new(false)
					sm.Annotations[v1alpha1.ReclaimedAnnotation] = sm.Annotations[v1alpha1.EmergencyReclaimAnnotation]
					delete(sm.Annotations, v1alpha1.EmergencyReclaimAnnotation)
				})
			}
			quiet := func(w *world, why string) {
				t.Helper()
				w.settle()
				if w.sm.BeingReclaimed() {
					t.Fatalf("%s: %s received the request again", why, w.sm.Name)
				}
			}
			quiet(asked, "what was passed on does not come back")
			quiet(other, "once")
			enable := func(w *world) {
				w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(true) })
			}
			enable(other)
			quiet(other, "a person turned it on")
			other.claimed(v1alpha1.HostReclaimedReason, "through ScheduledMachine "+asked.sm.Name)
			if _, made := b.machine(); made {
				t.Fatal("the owner has the host, and another lends it")
			}
			enable(asked)
			quiet(asked, "lent again")
			other.settle()
			b.want(v1alpha1.PhasePending, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.HostClaimedReason)
			b.claimed(v1alpha1.ClaimedByAnotherReason)
		})
	}
}

// TestTwoSimultaneousStartsOnOneHost uses a cache that shows neither ScheduledMachine to the other.
func TestTwoSimultaneousStartsOnOneHost(t *testing.T) {
	a := newWorld(t, on(desk))
	b := a.beside(a.sm.Namespace, "a-box", on(desk)) // It is the first by name if both have the same second.
	a.clock.SetTime(monday.Add(time.Hour))
	hidden := a.r.Reader
	a.r.Reader = alone{hidden}
	for made := false; !made; _, made = a.bootstrap() {
		if a.reconcile(); len(a.Writes) > 10 {
			t.Fatalf("the test shows nothing: %v", a.Writes)
		}
	}
	for range 4 {
		req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.sm)}
		if _, err := b.r.Reconcile(b.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if _, made := b.bootstrap(); made {
		t.Fatal("both act")
	}
	a.r.Reader = hidden
	b.settle()
	b.claimed(v1alpha1.ClaimedByAnotherReason)
	a.settle()
	if _, made := a.machine(); !made {
		t.Fatal("neither acts")
	}
}

// alone returns no ScheduledMachines of the same host.
type alone struct{ client.Reader }

func (alone) List(_ context.Context, _ client.ObjectList, _ ...client.ListOption) error { return nil }

// TestAHostChangeEnqueuesAffectedMachines uses copies of one manifest. There may be a thousand.
func TestAHostChangeEnqueuesAffectedMachines(t *testing.T) {
	a := newWorld(t, on(desk))
	b, c := a.beside(a.sm.Namespace, "box2", on(desk)), a.beside(a.sm.Namespace, "box3", on(desk))
	a.beside(a.sm.Namespace, "else", on(`{"address":"192.0.2.43"}`))
	since := time.Now()
	for i, w := range []*world{a, b, c} {
		w.sm.Status.Host = hostNamed(w.sm, since.Add(time.Duration(i)*time.Minute))
		w.Must(w.Client.Status().Update(w.Context(), w.sm))
	}
	wakes := func(sm *v1alpha1.ScheduledMachine, want ...string) {
		t.Helper()
		var got []string
		for _, req := range a.r.OfHost(t.Context(), sm) {
			got = append(got, req.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s wakes -want, +got:\n%s", sm.Name, diff)
		}
	}
	wakes(a.sm, "box2", "box3")
	wakes(b.sm, "box", "box3")
	wakes(c.sm, "box")
	changed := func(version string) *v1alpha1.ScheduledMachine {
		sm := c.sm.DeepCopy()
		sm.ResourceVersion = version
		return sm
	}
	runs := changed("x1")
	runs.Status.MachineRef = &v1alpha1.ChildReference{Name: "box3-machine"}
	runs.Status.Host.MachineNames = runs.Status.Host.Names
	runs.Status.InfrastructureRef = &v1alpha1.ChildReference{APIVersion: c.sm.Spec.InfrastructureSpec.APIVersion, Kind: c.sm.Spec.InfrastructureSpec.Kind}
	wakes(runs, "box", "box2")
	asked := changed("x2")
	asked.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"}
	wakes(asked, "box", "box2")

	stopped, touched := changed("x3"), changed("x4")
	stopped.Status.Phase, touched.Labels = v1alpha1.PhaseInactive, map[string]string{"a": "b"}
	for want, all := range map[bool][]*v1alpha1.ScheduledMachine{true: {a.sm, runs, asked, stopped}, false: {c.sm, touched}} {
		for i, sm := range all {
			if got := scheduledmachine.HostChanges().Update(event.UpdateEvent{ObjectOld: c.sm, ObjectNew: sm}); got != want {
				t.Errorf("change %d wakes others: %v, want %v", i, got, want)
			}
		}
	}
}

func TestHostKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want []string
	}{
		"nothing":           {``, nil},
		"no object":         {`[]`, nil},
		"address":           {`{"address":"192.0.2.42"}`, []string{"address|K|192.0.2.42:22"}},
		"port":              {`{"address":"192.0.2.42","port":2222}`, []string{"address|K|192.0.2.42:2222"}},
		"mapped":            {`{"address":"::ffff:192.0.2.42","port":22}`, []string{"address|K|192.0.2.42:22"}},
		"IPv6":              {`{"address":"[2001:DB8:0::1]"}`, []string{"address|K|[2001:db8::1]:22"}},
		"name":              {`{"address":" Desk.Example.ORG. "}`, []string{"address|K|desk.example.org:22"}},
		"of another case":   {`{"address":"192.0.2.42","ADDRESS":"192.0.2.43"}`, []string{"address|K|192.0.2.42:22"}},
		"port as text":      {`{"address":"192.0.2.42","port":"2222"}`, []string{"address|K|192.0.2.42:2222"}},
		"much else":         {`{"files":["` + strings.Repeat("x", 1<<20) + `"],"address":"192.0.2.42","deep":{"address":"192.0.2.43"}}`, []string{"address|K|192.0.2.42:22"}},
		"no end":            {`{"address":"192.0.2.42"`, nil},
		"of another type":   {`{"address":7,"nodeName":[],"providerID":{}}`, nil},
		"too long":          {`{"address":"` + strings.Repeat("a", 600) + `"}`, nil},
		"others":            {`{"providerID":"x://y","nodeName":"n"}`, []string{"providerID|farm|x://y", "nodeName|farm/lab|n"}},
		"hidden characters": {`{"nodeName":"n\u202e"}`, []string{"nodeName|farm/lab|n"}},
	} {
		t.Run(name, func(t *testing.T) {
			sm := testenv.ScheduledMachine("farm", "box")
			on(tc.spec)(sm)
			kind := sm.Spec.InfrastructureSpec.Kind + ".infrastructure.cluster.x-k8s.io"
			got := scheduledmachine.HostKeys(sm)
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], kind, "K")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// TestAServedRequestIsNotPropagatedAgain writes the record like package reclaim, with the time at which it was
// served.
func TestAServedRequestIsNotPropagatedAgain(t *testing.T) {
	request := v1alpha1.ReclaimRecord{Node: "n", NodeUID: "u", Reason: "process-match: java", RequestedAt: "2025-01-20T10:00:00Z"}
	a := newWorld(t, on(desk))
	b := a.beside(a.sm.Namespace, "box2", on(desk))
	a.running()
	b.settle()
	a.edit(func(sm *v1alpha1.ScheduledMachine) {
		metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, request.String())
	})
	b.reconcile()
	for _, w := range []*world{b, a} { // as package reclaim does when it turns a schedule off
		w.edit(func(sm *v1alpha1.ScheduledMachine) {
			r, _ := sm.ReclaimRequest()
			sm.Spec.Schedule.Enabled = new(false)
			sm.Annotations[v1alpha1.ReclaimedAnnotation] = r.Served(w.clock.Now()).String()
			delete(sm.Annotations, v1alpha1.EmergencyReclaimAnnotation)
		})
	}
	b.settle()
	a.settle()
	b.edit(func(sm *v1alpha1.ScheduledMachine) { // kubectl 5spot resume
		delete(sm.Annotations, v1alpha1.ReclaimedAnnotation)
		sm.Spec.Schedule.Enabled = new(true)
	})
	b.settle()
	if b.sm.BeingReclaimed() {
		t.Fatalf("a person resumed box2, and it receives the same request again: %v", b.sm.Annotations)
	}
}

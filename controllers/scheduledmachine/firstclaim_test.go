// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

func inTheEvening(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20"} }
func atAllHours(sm *v1alpha1.ScheduledMachine)   { sm.Spec.Schedule.HoursOfDay = []string{"0-23"} }

// within makes the manager of o serve this ScheduledMachine, too.
func (w *world) within(o *world) *world {
	w.r, w.clock = o.r, o.clock
	return w
}

// goesOn opens the window of the ScheduledMachine that is first, and checks that the other one creates nothing.
func (w *world) goesOn(other *world) {
	w.Helper()
	other.settle()
	if _, made := other.machine(); made {
		w.Fatal("who came later took the host")
	}
	other.want(v1alpha1.PhasePending, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.HostClaimedReason)
	other.claimed(v1alpha1.ClaimedByAnotherReason)
	w.edit(atAllHours)
	w.settle()
	if _, made := w.machine(); !made {
		w.Fatalf("who came first is kept out: %s", w.sm.Status.Message)
	}
}

// TestAnEditDoesNotComeFirstByTheClock uses a manager whose clock is years behind the API server's, which sets creation
// times.
func TestAnEditDoesNotComeFirstByTheClock(t *testing.T) {
	first := newWorld(t, on(`{"address":"clock.test"}`))
	first.edit(inTheEvening)
	first.clock.SetTime(monday.Add(time.Hour))
	first.settle()
	later := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		on(`{"address":"later-clock.test"}`)(sm)
		sm.Spec.BootstrapSpec.Kind = "NoSuchConfig"
	}).within(first)
	later.settle()
	later.want(v1alpha1.PhaseError, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, v1alpha1.ReferencesInvalidReason)
	later.edit(func(sm *v1alpha1.ScheduledMachine) {
		on(`{"address":"clock.test"}`)(sm)
		sm.Spec.BootstrapSpec.Kind = first.sm.Spec.BootstrapSpec.Kind
	})
	first.goesOn(later)
}

// TestAnUnreconciledEditDoesNotComeFirst uses an object that was paused from its creation. Its creation time
// is the time of its first spec.
func TestAnUnreconciledEditDoesNotComeFirst(t *testing.T) {
	later := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		on(`{"address":"later-pause.test"}`)(sm)
		sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	later.settle()
	first := newWorld(t, on(`{"address":"pause.test"}`))
	first.edit(inTheEvening)
	first.clock.SetTime(monday.AddDate(0, 0, 520*7).Add(time.Hour)) // Later than the API server's clock.
	first.settle()
	later.within(first).edit(on(`{"address":"pause.test"}`))
	later.settle()
	first.settle()
	first.claimed(v1alpha1.ClaimedFirstReason)
	later.edit(func(sm *v1alpha1.ScheduledMachine) { delete(sm.Annotations, clusterv1.PausedAnnotation) })
	first.goesOn(later)
}

// TestAnEditOfTheKindDoesNotComeFirst uses an object that named the same address with another kind before, which is
// another host.
func TestAnEditOfTheKindDoesNotComeFirst(t *testing.T) {
	later := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		on(`{"address":"kind.test"}`)(sm)
		sm.Spec.InfrastructureSpec.Kind = "NoSuchMachine"
	})
	later.clock.SetTime(monday.AddDate(0, 0, 520*7)) // Later than the API server's clock.
	later.settle()
	first := newWorld(t, on(`{"address":"later-kind.test"}`)).within(later)
	first.edit(inTheEvening)
	first.clock.SetTime(later.clock.Now().Add(time.Hour))
	first.settle()
	first.edit(on(`{"address":"kind.test"}`))
	first.settle()
	first.claimed("")
	first.clock.SetTime(later.clock.Now().Add(time.Hour))
	later.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = inline.InfrastructureSpec.Kind })
	first.goesOn(later)
}

// TestAnUnusableMachineDoesNotReserveTheHost uses a ScheduledMachine that reserves a host, fails to create anything,
// and changes to another host. It is not reconciled in between.
func TestAnUnusableMachineDoesNotReserveTheHost(t *testing.T) {
	stuck := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		on(`{"address":"noted.test"}`)(sm)
		sm.Spec.BootstrapSpec.Kind = "NoSuchConfig"
	})
	stuck.clock.SetTime(monday.Add(time.Hour))
	stuck.settle()
	stuck.edit(func(sm *v1alpha1.ScheduledMachine) {
		on(`{"address":"elsewhere.test"}`)(sm)
		sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	stuck.settle()
	next := newWorld(t, on(`{"address":"noted.test"}`)).within(stuck)
	next.settle()
	if _, made := next.machine(); !made {
		t.Errorf("who makes nothing, and names another host by now, keeps it: %s", next.sm.Status.Message)
	}
}

// templates creates the templates of clonedFrom("desk"). The infrastructure template has the address.
func (w *world) templates(address string) {
	w.Helper()
	w.newTemplate(bootstrapTemplate("desk"), "")
	w.newTemplate(infraTemplate("desk"), address)
}

func TestATemplateDoesNotTakeAHost(t *testing.T) {
	first := newWorld(t, on(`{"address":"template.test"}`))
	first.edit(inTheEvening)
	first.clock.SetTime(monday.Add(time.Hour))
	first.settle()
	cloned := newWorld(t, clonedFrom("desk")).within(first)
	cloned.templates("Template.test.")
	first.goesOn(cloned)
	cloned.claimed(v1alpha1.ClaimedByAnotherReason, "address template.test:22")
	if _, made := cloned.clone(); made {
		t.Error("made by halves")
	}
	cloned.Writes = nil
	if cloned.settle(); len(cloned.Writes) != 0 {
		t.Errorf("what is settled writes nothing: %v", cloned.Writes)
	}
	woken := func() bool {
		return slices.ContainsFunc(first.r.OfHost(t.Context(), first.sm), func(req ctrl.Request) bool { return req.Namespace == cloned.sm.Namespace })
	}
	if !woken() {
		t.Error("nothing enqueues it when the host is free")
	}
	first.edit(func(sm *v1alpha1.ScheduledMachine) {
		inTheEvening(sm)
		on(`{"address":"other.test"}`)(sm)
	})
	first.settle()
	first.gone()
	first.settle()
	cloned.settle()
	if address, made := cloned.clone(); !made || address != "Template.test." {
		t.Errorf("the host is free: %s", cloned.sm.Status.Message)
	}
}

// TestATemplateKeepsItsHost checks that a host stays claimed outside of the windows, too.
func TestATemplateKeepsItsHost(t *testing.T) {
	cloned := newWorld(t, clonedFrom("desk"))
	cloned.templates("kept.test")
	cloned.clock.SetTime(monday.Add(time.Hour))
	cloned.settle()
	cloned.settle()
	since := cloned.sm.Status.Host.ClaimTime
	cloned.edit(inTheEvening)
	cloned.settle()
	cloned.endOfTheMachine()
	cloned.settle()
	const kind = "GenericInfrastructureMachine"
	want := &v1alpha1.HostStatus{
		Source: "template " + kind + "Template.infrastructure.cluster.x-k8s.io/desk", ClaimTime: since,
		Names: []v1alpha1.HostName{{Kind: "address", Scope: kind + ".infrastructure.cluster.x-k8s.io", Value: "kept.test:22"}},
	}
	if diff := cmp.Diff(want, cloned.sm.Status.Host); diff != "" {
		t.Fatalf("-want, +got:\n%s", diff)
	}
	later := newWorld(t, on(`{"address":"later-kept.test"}`)).within(cloned)
	later.edit(inTheEvening)
	later.settle()
	later.edit(func(sm *v1alpha1.ScheduledMachine) {
		on(`{"address":"kept.test"}`)(sm)
		atAllHours(sm)
	})
	later.settle()
	later.claimed(v1alpha1.ClaimedByAnotherReason)
	cloned.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureTemplateRef.Name = "another" })
	cloned.settle()
	later.settle()
	if _, made := later.machine(); !made {
		t.Errorf("the first names another template: %s", later.sm.Status.Message)
	}
}

// TestTheCheckedCloneIsCreated edits the template between two reads of it.
func TestTheCheckedCloneIsCreated(t *testing.T) {
	first := newWorld(t, on(`{"address":"judged.test"}`))
	first.running()
	cloned := newWorld(t, clonedFrom("desk"))
	cloned.templates("free.test")
	reads := 0
	cloned.r = cloned.reconciler(cloned.Recorded(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if u, ok := obj.(*unstructured.Unstructured); ok && u.GetKind() == infraTemplate("").Kind && err == nil {
				if reads++; reads%2 == 0 {
					err = unstructured.SetNestedField(u.Object, "judged.test", "spec", "template", "spec", "address")
				}
			}
			return err
		},
	}))
	cloned.reconcile() // The first reconcile adds the finalizer.
	cloned.clock.SetTime(monday.Add(time.Hour))
	for range 6 {
		reads = 0
		cloned.reconcile()
	}
	if address, made := cloned.clone(); !made || address != "free.test" {
		t.Errorf("made on %q (%t), judged was free.test", address, made)
	}
}

// TestAnUnreadableTemplateCreatesNothing checks that an unreadable template is not treated as absent.
func TestAnUnreadableTemplateCreatesNothing(t *testing.T) {
	w := newWorld(t, clonedFrom("desk"))
	w.templates("unread.test")
	w.settle()
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if u, ok := obj.(*unstructured.Unstructured); ok && u.GetKind() == infraTemplate("").Kind {
				return testenv.ErrLost
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}))
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	if _, made := w.clone(); made || w.sm.Status.Phase != v1alpha1.PhaseError {
		t.Errorf("phase %s, made %t", w.sm.Status.Phase, made)
	}
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
	w.settle()
	if _, made := w.clone(); !made {
		t.Errorf("it can be read: %s", w.sm.Status.Message)
	}
}

// TestTheOwnerHasTheHostOfATemplate covers a request through another ScheduledMachine, before the template was read.
func TestTheOwnerHasTheHostOfATemplate(t *testing.T) {
	a := newWorld(t, on(desk))
	a.running()
	b := a.beside(a.sm.Namespace, "box2", clonedFrom("desk"))
	b.templates("192.0.2.42")
	a.edit(func(sm *v1alpha1.ScheduledMachine) {
		metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, `{"node":"n","requestedAt":"2025-01-20T10:00:00Z"}`)
	})
	b.settle()
	if request, asked := b.sm.ReclaimRequest(); !asked || request.PropagatedFrom != "box" {
		t.Errorf("the request is propagated to the other object of the host: %+v, phase %s", request, b.sm.Status.Phase)
	}
}

// TestRequestsAreTheSameInAnyOrder covers the order in which a cache lists the requests.
func TestRequestsAreTheSameInAnyOrder(t *testing.T) {
	a := newWorld(t, on(desk))
	b, c := a.beside(a.sm.Namespace, "box2", on(desk)), a.beside(a.sm.Namespace, "box3", on(desk))
	for _, w := range []*world{a, b} {
		w.edit(func(sm *v1alpha1.ScheduledMachine) {
			metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, `{"node":"`+sm.Name+`"}`)
		})
	}
	for _, back := range []bool{false, true} {
		c.r = c.reconciler(c.Recorded(interceptor.Funcs{}))
		c.r.Reader = order{c.r.Reader, back}
		c.settle()
		if c.sm.BeingReclaimed() == back {
			t.Errorf("listed backwards (%t): it has the request (%t)", back, c.sm.BeingReclaimed())
		}
		c.edit(func(sm *v1alpha1.ScheduledMachine) { delete(sm.Annotations, v1alpha1.EmergencyReclaimAnnotation) })
	}
}

// order lists objects in a fixed order.
type order struct {
	client.Reader

	back bool
}

func (o order) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := o.Reader.List(ctx, list, opts...)
	if all, ok := list.(*v1alpha1.ScheduledMachineList); ok {
		slices.SortFunc(all.Items, func(a, b v1alpha1.ScheduledMachine) int {
			if o.back {
				return strings.Compare(b.Name, a.Name)
			}
			return strings.Compare(a.Name, b.Name)
		})
	}
	return err
}

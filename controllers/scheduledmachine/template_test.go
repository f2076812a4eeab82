// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// inline is the initial spec of each world.
var inline = testenv.ScheduledMachine("", "").Spec

// infraTemplate and bootstrapTemplate refer to templates of the given name.
func infraTemplate(name string) v1alpha1.TemplateReference {
	return v1alpha1.TemplateReference{
		APIVersion: builder.InfrastructureGroupVersion.String(), Kind: builder.GenericInfrastructureMachineTemplateKind, Name: name,
	}
}

func bootstrapTemplate(name string) v1alpha1.TemplateReference {
	return v1alpha1.TemplateReference{
		APIVersion: builder.BootstrapGroupVersion.String(), Kind: builder.GenericBootstrapConfigTemplateKind, Name: name,
	}
}

// clonedFrom replaces the inline specs with template references.
func clonedFrom(name string) func(*v1alpha1.ScheduledMachine) {
	return func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.BootstrapSpec, sm.Spec.InfrastructureSpec = v1alpha1.EmbeddedObject{}, v1alpha1.EmbeddedObject{}
		sm.Spec.BootstrapTemplateRef, sm.Spec.InfrastructureTemplateRef = bootstrapTemplate(name), infraTemplate(name)
	}
}

// newTemplate creates the template that ref names, with an address for its clones.
func (w *world) newTemplate(ref v1alpha1.TemplateReference, address string) {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"address": address}}},
	}}
	u.SetAPIVersion(ref.APIVersion)
	u.SetKind(ref.Kind)
	u.SetNamespace(w.sm.Namespace)
	u.SetName(ref.Name)
	w.Create(u)
}

// clone returns the address of the infrastructure machine.
func (w *world) clone() (address string, ok bool) {
	w.Helper()
	u, ok := w.child(inline.InfrastructureSpec, "box-infra")
	address, _, _ = unstructured.NestedString(u.Object, "spec", "address")
	return address, ok
}

func TestAMissingTemplateIsReportedAndRetried(t *testing.T) {
	w := newWorld(t, clonedFrom("desk"))
	w.newTemplate(bootstrapTemplate("desk"), "")
	w.clock.SetTime(monday.Add(time.Hour))
	if next := w.settle(); next != time.Second {
		t.Errorf("first retry in %v, want 1s", next)
	}
	w.want(v1alpha1.PhaseError, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, v1alpha1.ReferencesInvalidReason)
	got := conditions.GetMessage(w.sm, v1alpha1.ReferencesValidCondition)
	if want := "spec.infrastructureTemplateRef: GenericInfrastructureMachineTemplate desk does not exist"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, ok := w.child(inline.BootstrapSpec, "box-bootstrap"); ok {
		t.Error("half of it was made")
	}
	w.newTemplate(infraTemplate("desk"), "192.0.2.1")
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, v1alpha1.ReferencesValidReason)
	if address, _ := w.clone(); address != "192.0.2.1" {
		t.Errorf("the clone has address %q", address)
	}
}

func TestTemplateNamedInPlaceOfASpecAppliesAtTheNextWindow(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.newTemplate(bootstrapTemplate("desk"), "")
	w.newTemplate(infraTemplate("desk"), "192.0.2.1")
	w.edit(clonedFrom("desk"))
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
	if got := w.sm.Status.Message; !strings.Contains(got, "edits of spec.bootstrapTemplateRef and spec.infrastructureTemplateRef apply at the next window") {
		t.Errorf("the status does not say so: %q", got)
	}
	if address, ok := w.clone(); address != "" || !ok {
		t.Error("applied at once")
	}
	w.clock.SetTime(monday.Add(10 * time.Hour))
	w.settle()
	w.endOfTheMachine()
	w.settle()
	w.clock.SetTime(monday.Add(25 * time.Hour))
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, v1alpha1.ReferencesValidReason)
	if address, _ := w.clone(); address != "192.0.2.1" {
		t.Errorf("the next window's machine has address %q", address)
	}
}

// TestTemplatesGoWithTheirCluster checks the owner references that clusterctl move follows.
func TestTemplatesGoWithTheirCluster(t *testing.T) {
	w := newWorld(t, clonedFrom("desk"))
	w.newTemplate(infraTemplate("desk"), "192.0.2.1")
	w.settle()
	w.newTemplate(bootstrapTemplate("desk"), "") // It is created after the last reconcile.
	class := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "ClusterClass", Name: "desks", UID: "1"}
	owners := func(ref v1alpha1.TemplateReference) string {
		var kinds []string
		for _, owner := range w.template(ref).GetOwnerReferences() {
			kinds = append(kinds, owner.Kind+" "+owner.Name)
		}
		return strings.Join(kinds, ", ")
	}
	if got := owners(infraTemplate("desk")); got != "Cluster lab" {
		t.Errorf("before its first window, the template is owned by %q", got)
	}
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	if got := owners(bootstrapTemplate("desk")); got != "Cluster lab" {
		t.Errorf("a template that came later is owned by %q", got)
	}
	w.newTemplate(infraTemplate("classy"), "192.0.2.2")
	classy := w.template(infraTemplate("classy"))
	w.Edit(classy, func() { classy.SetOwnerReferences([]metav1.OwnerReference{class}) })
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureTemplateRef = infraTemplate("classy") })
	w.settle()
	if got := owners(infraTemplate("classy")); got != "ClusterClass desks" {
		t.Errorf("a template of a ClusterClass is owned by %q", got)
	}
	w.Writes = nil
	if w.settle(); len(w.Writes) != 0 {
		t.Errorf("settled, and yet: %v", w.Writes)
	}
}

// TestARemovalNeedsNoTemplate turns the kill switch on while templates cannot be read.
func TestARemovalNeedsNoTemplate(t *testing.T) {
	w := newWorld(t, clonedFrom("desk"))
	w.newTemplate(bootstrapTemplate("desk"), "")
	w.newTemplate(infraTemplate("desk"), "192.0.2.1")
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	m, _ := w.machine()
	w.hold(m)
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if u, ok := obj.(*unstructured.Unstructured); ok && strings.HasSuffix(u.GetKind(), "Template") {
				return testenv.ErrLost
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}))
	w.reconcile()
	if m, _ = w.machine(); m.DeletionTimestamp.IsZero() {
		t.Errorf("the Machine waits for its templates: %v", w.Writes)
	}
}

// template reads the template that ref names.
func (w *world) template(ref v1alpha1.TemplateReference) *unstructured.Unstructured {
	w.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(ref.APIVersion)
	u.SetKind(ref.Kind)
	u.SetNamespace(w.sm.Namespace)
	u.SetName(ref.Name)
	if !w.Read(u) {
		w.Fatalf("there is no %s %s", ref.Kind, ref.Name)
	}
	return u
}

// endOfTheMachine ends the deletion of a Machine like Cluster API, although the spec was edited meanwhile.
func (w *world) endOfTheMachine() {
	w.Helper()
	edited := w.sm.Spec
	w.sm.Spec = inline
	w.gone()
	w.sm.Spec = edited
}

// TestCrashPointsOfClones is the first part of TestCrashPoints, with templates.
func TestCrashPointsOfClones(t *testing.T) {
	testenv.CrashPoints(t, 8, func(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
		t.Helper()
		w := newWorld(t, clonedFrom("desk"))
		w.newTemplate(bootstrapTemplate("desk"), "")
		w.newTemplate(infraTemplate("desk"), "192.0.2.1")
		w.Fail = fail
		w.clock.SetTime(monday.Add(time.Hour))
		for range 12 {
			if next := w.settle(); next != time.Second {
				break // neither at once nor after a failure
			}
		}
		w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, v1alpha1.ReferencesValidReason)
		_, machine := w.machine()
		address, infra := w.clone()
		_, bootstrap := w.child(inline.BootstrapSpec, "box-bootstrap")
		stations = append(stations, fmt.Sprint(w.sm.Status.Phase, machine, infra, address, bootstrap))
		return stations, len(w.Writes)
	})
}

// TestSchemaAndValidationAgreeAboutTemplates compares the API server, which has only the schema, with package
// validation.
func TestSchemaAndValidationAgreeAboutTemplates(t *testing.T) {
	change := func(change func(*v1alpha1.TemplateReference)) func(*v1alpha1.ScheduledMachine) {
		return func(sm *v1alpha1.ScheduledMachine) {
			clonedFrom("desk")(sm)
			change(&sm.Spec.InfrastructureTemplateRef)
		}
	}
	w := newWorld(t, nil)
	for name, change := range map[string]func(*v1alpha1.ScheduledMachine){
		"Inline":    nil,
		"Templates": clonedFrom("desk.v1"),
		"Neither":   func(sm *v1alpha1.ScheduledMachine) { sm.Spec.BootstrapSpec = v1alpha1.EmbeddedObject{} },
		"Both":      func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureTemplateRef = infraTemplate("desk") },
		"Mixed": func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.InfrastructureSpec, sm.Spec.InfrastructureTemplateRef = v1alpha1.EmbeddedObject{}, infraTemplate("desk")
		},
		"Kind":          change(func(ref *v1alpha1.TemplateReference) { ref.Kind = "DevMachine" }),
		"OnlyTemplate":  change(func(ref *v1alpha1.TemplateReference) { ref.Kind = "Template" }),
		"LowerCase":     change(func(ref *v1alpha1.TemplateReference) { ref.Kind = "Devtemplate" }),
		"NoKind":        change(func(ref *v1alpha1.TemplateReference) { ref.Kind = "" }),
		"NoName":        change(func(ref *v1alpha1.TemplateReference) { ref.Name = "" }),
		"BadName":       change(func(ref *v1alpha1.TemplateReference) { ref.Name = "-x" }),
		"LongName":      change(func(ref *v1alpha1.TemplateReference) { ref.Name = strings.Repeat("x", 254) }),
		"NoGroup":       change(func(ref *v1alpha1.TemplateReference) { ref.APIVersion = "v1" }),
		"OtherGroup":    change(func(ref *v1alpha1.TemplateReference) { ref.APIVersion = builder.BootstrapGroupVersion.String() }),
		"K0smotron":     change(func(ref *v1alpha1.TemplateReference) { ref.APIVersion = "k0smotron.io/v1beta1" }),
		"NoAPIVersion":  change(func(ref *v1alpha1.TemplateReference) { ref.APIVersion = "" }),
		"EmptyTemplate": change(func(ref *v1alpha1.TemplateReference) { *ref = v1alpha1.TemplateReference{} }),
	} {
		sm := testenv.ScheduledMachine(w.sm.Namespace, "another")
		if change != nil {
			change(sm)
		}
		errs := validation.ScheduledMachine(sm)
		err := w.Client.Create(t.Context(), sm, client.DryRunAll)
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if (err == nil) != (len(errs) == 0) {
			t.Errorf("%s: the schema says %v, validation %v", name, err, errs)
		}
	}
}

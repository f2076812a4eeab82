// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// An outage is a failure of reads of a provider's kinds.
type outage struct {
	// definition changes a CustomResourceDefinition that was read, or returns an error.
	definition func(*apiextensionsv1.CustomResourceDefinition) error
	// object is the error of a read of an object.
	object error
}

var outages = map[string]outage{
	"VersionNotServed": {definition: func(crd *apiextensionsv1.CustomResourceDefinition) error {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = false
		}
		return nil
	}},
	"NotEstablished": {definition: func(crd *apiextensionsv1.CustomResourceDefinition) error {
		crd.Status.Conditions = nil
		return nil
	}},
	"DefinitionUnreadable":    {definition: func(*apiextensionsv1.CustomResourceDefinition) error { return errors.New("connection refused") }},
	"ConversionWebhookDown":   {object: apierrors.NewInternalError(errors.New("conversion webhook failed: dial tcp 127.0.0.1:54321"))},
	"NeverListed":             {object: apierrors.NewTimeoutError("failed waiting for Informer to sync", 0)},
	"ServerKnowsNoSuchKind":   {object: apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "box-infra", "404 page not found", 0, true)},
	"MayNotBeRead":            {object: apierrors.NewForbidden(schema.GroupResource{}, "box-infra", errors.New("no"))},
	"DeadlineOfTheReadIsOver": {object: fmt.Errorf("reading: %w", context.DeadlineExceeded)},
}

// reads returns the reads of a client during the outage.
func (o outage) reads(lasts *bool) interceptor.Funcs {
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, key, obj, opts...)
		if !*lasts {
			return err
		}
		switch obj := obj.(type) {
		case *apiextensionsv1.CustomResourceDefinition:
			if err == nil && o.definition != nil && obj.Spec.Names.Kind == builder.GenericInfrastructureMachineKind {
				return o.definition(obj)
			}
		case *unstructured.Unstructured:
			if o.object != nil && obj.GetKind() == builder.GenericInfrastructureMachineKind {
				return o.object
			}
		}
		return err
	}}
}

// blind starts a machine, restarts the manager, and makes the infrastructure unreadable until see is called.
func blind(t *testing.T, o outage) (w *world, see func()) {
	t.Helper()
	w = newWorld(t, nil)
	w.running()
	lasts := true
	w.r = w.reconciler(w.Recorded(o.reads(&lasts)))
	w.Writes = nil
	return w, func() { lasts = false }
}

func TestAnUnreadableChildIsKept(t *testing.T) {
	for name, o := range outages {
		t.Run(name, func(t *testing.T) {
			w, see := blind(t, o)
			for range 3 {
				w.reconcile()
			}
			w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionUnknown, v1alpha1.ReferencesUnreadableReason)
			got := conditions.Get(w.sm, v1alpha1.ReferencesValidCondition).Message
			if !strings.Contains(got, "spec.infrastructureSpec: ") || !strings.Contains(got, "Infrastructure") || strings.Contains(got, "54321") {
				t.Errorf("the message names the field and the kind, and nothing that changes each time: %q", got)
			}
			if len(w.Writes) != 1 {
				t.Errorf("one report, and nothing else is written: %q", w.Writes)
			}
			if m, ok := w.machine(); !ok || !m.DeletionTimestamp.IsZero() {
				t.Fatal("a machine that runs was taken away")
			}
			see()
			w.reconcile()
			w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, v1alpha1.ReferencesValidReason)
		})
	}
}

func TestTheWindowEndsWhileTheInfrastructureCannotBeRead(t *testing.T) {
	for name, o := range outages {
		t.Run(name, func(t *testing.T) {
			w, see := blind(t, o)
			w.clock.SetTime(monday.Add(10 * time.Hour))
			w.settle()
			m, ok := w.machine()
			if !ok || m.DeletionTimestamp.IsZero() {
				t.Fatal("the window's end does not wait for a provider")
			}
			w.letGo(m) // Another client removes its finalizer: the infrastructure remains.
			w.settle()
			w.want(v1alpha1.PhaseShuttingDown, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ShuttingDownReason)
			if b, ok := w.bootstrap(); !ok || !b.GetDeletionTimestamp().IsZero() {
				t.Error("the bootstrap config was deleted, although the infrastructure may still need it")
			}
			for range 12 {
				if wait := w.reconcile().RequeueAfter; wait > 30*time.Second {
					t.Fatalf("after the outage the departure would wait for up to %v", wait)
				}
			}
			see()
			w.settle()
			i, _ := w.infra()
			if i.GetDeletionTimestamp().IsZero() {
				t.Fatal("what can be seen again is deleted")
			}
			w.letGo(i)
			w.settle()
			w.settle() // The deletion of the bootstrap config triggers a reconcile.
			w.want(v1alpha1.PhaseInactive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InactiveReason)
		})
	}
}

func TestAnUnreadableKindCreatesNothing(t *testing.T) {
	lasts := true
	w := newWorld(t, nil)
	w.r = w.reconciler(w.Recorded(outages["VersionNotServed"].reads(&lasts)))
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	w.want(v1alpha1.PhasePending, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ReferencesUnreadableReason)
	if _, ok := w.bootstrap(); ok {
		t.Error("nothing is made by halves")
	}
	lasts = false
	w.settle()
	if _, ok := w.machine(); !ok {
		t.Error("joins once all children can be read")
	}
}

func TestAKindThatIsUninstalledLeavesNothingToWaitFor(t *testing.T) {
	w := newWorld(t, nil)
	w.settle()
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		}
		return c.Get(ctx, key, obj, opts...)
	}}))
	w.Must(w.Client.Delete(t.Context(), w.sm))
	for range 3 {
		w.reconcile()
	}
	if w.Read(w.sm) {
		t.Errorf("of a kind that is not installed there are no objects, so the ScheduledMachine may go: %+v", w.sm.Status)
	}
}

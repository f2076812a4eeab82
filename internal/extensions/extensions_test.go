// SPDX-License-Identifier: Apache-2.0

package extensions_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/extensions"
)

// hook returns a MachineDeletionHook with that name, modified by change.
func hook(name string, change func(*v1alpha1.MachineDeletionHook)) *v1alpha1.MachineDeletionHook {
	h := &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if change != nil {
		change(h)
	}
	return h
}

// selects limits a hook to the namespaces of a team.
func selects(team string) func(*v1alpha1.MachineDeletionHook) {
	return func(h *v1alpha1.MachineDeletionHook) {
		h.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
	}
}

func leaves(h *v1alpha1.MachineDeletionHook) {
	h.DeletionTimestamp, h.Finalizers = new(metav1.Now()), []string{"test/hold"}
}

// unreadable gives a hook a selector of a newer API.
func unreadable(h *v1alpha1.MachineDeletionHook) {
	h.Spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Newer"}}}
}

// holding is a cache with Namespace farm of team a, and these hooks.
func holding(t *testing.T, reads interceptor.Funcs, hooks ...*v1alpha1.MachineDeletionHook) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(reads).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "farm", Labels: map[string]string{"team": "a"}}})
	for _, h := range hooks {
		b.WithObjects(h)
	}
	return b.Build()
}

func TestWhoIsAsked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		hook   *v1alpha1.MachineDeletionHook
		want   bool
	}{
		"Everywhere":         {"Without a selector it is for all namespaces.", hook("lb", nil), true},
		"Selected":           {"The namespace has the label.", hook("lb", selects("a")), true},
		"Another":            {"The machines of another team are none of its business.", hook("lb", selects("b")), false},
		"Unreadable":         {"An extension is asked once too often rather than not.", hook("lb", unreadable), true},
		"Leaving":            {"Nobody waits for one that is going.", hook("lb", leaves), false},
		"LeavingAndSelected": {"A selector does not bring it back.", hook("lb", func(h *v1alpha1.MachineDeletionHook) { leaves(h); selects("a")(h) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := extensions.For(t.Context(), holding(t, interceptor.Funcs{}, tc.hook), "farm")
			if err != nil || (len(got) == 1) != tc.want {
				t.Errorf("%s\nasked: %d, error %v", tc.reason, len(got), err)
			}
		})
	}
}

// TestTheOrderIsThatOfNames has a cache that returns objects in no fixed order. Messages must not change with it.
func TestTheOrderIsThatOfNames(t *testing.T) {
	t.Parallel()
	reader := holding(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if hooks, ok := list.(*v1alpha1.MachineDeletionHookList); ok {
			slices.Reverse(hooks.Items)
		}
		return err
	}}, hook("b", nil), hook("a", nil), hook("c", selects("a")))
	got, err := extensions.For(t.Context(), reader, "farm")
	var names []string
	for i := range got {
		names = append(names, got[i].Name)
	}
	if want := []string{"a", "b", "c"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("asked %v, error %v, want %v", names, err, want)
	}
}

// TestWhatCannotBeReadIsNotNobody has reads that fail. A Machine that left after such an error would skip its
// extensions.
func TestWhatCannotBeReadIsNotNobody(t *testing.T) {
	t.Parallel()
	broken := errors.New("not started")
	for name, reads := range map[string]interceptor.Funcs{
		"MachineDeletionHooks": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }},
		"Namespace": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := extensions.For(t.Context(), holding(t, reads, hook("lb", selects("a"))), "farm"); !errors.Is(err, broken) {
				t.Errorf("asked: %d, error %v", len(got), err)
			}
		})
	}
}

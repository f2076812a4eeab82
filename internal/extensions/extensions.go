// SPDX-License-Identifier: Apache-2.0

// Package extensions selects the MachineDeletionHooks that apply to a namespace. It sends no requests to the
// extensions.
package extensions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// For returns the MachineDeletionHooks that apply to a namespace, sorted by name. An invalid selector selects every
// namespace: an unnecessary call is safer than a missing one. A hook that is being deleted does not apply.
func For(ctx context.Context, reader client.Reader, namespace string) ([]v1alpha1.MachineDeletionHook, error) {
	list := &v1alpha1.MachineDeletionHookList{}
	if err := reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing MachineDeletionHooks: %w", err)
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if len(list.Items) > 0 {
		if err := reader.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
			return nil, fmt.Errorf("reading Namespace: %w", err)
		}
	}
	hooks := slices.DeleteFunc(list.Items, func(h v1alpha1.MachineDeletionHook) bool {
		if !h.DeletionTimestamp.IsZero() || h.Spec.NamespaceSelector == nil {
			return !h.DeletionTimestamp.IsZero()
		}
		selector, err := metav1.LabelSelectorAsSelector(h.Spec.NamespaceSelector)
		return err == nil && !selector.Matches(labels.Set(ns.Labels))
	})
	slices.SortFunc(hooks, func(a, b v1alpha1.MachineDeletionHook) int { return strings.Compare(a.Name, b.Name) })
	return hooks, nil
}

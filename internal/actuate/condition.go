// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyCondition sets one condition in the status of somebody else's object. Only that
// condition is sent, and no version: it is not refused because others write the same
// status, and takes nothing of theirs back. The API server does not compare the UID in what
// is applied to a status: another object of the same name gets the condition, until whoever
// wrote it looks again.
func (a *Actuator) ApplyCondition(ctx context.Context, obj client.Object, as schema.GroupVersionKind, c metav1.Condition) error {
	condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
	if err != nil {
		return fmt.Errorf("converting condition: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{condition}}}}
	u.SetGroupVersionKind(as)
	u.SetNamespace(obj.GetNamespace())
	u.SetName(obj.GetName())
	u.SetUID(obj.GetUID())
	if err := a.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying condition %s of %s %s: %w", c.Type, as.Kind, obj.GetName(), err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyCondition sets one condition in the status of an object that another controller owns. It sends only that
// condition and no resourceVersion, so other writers of the status cause no conflict and lose nothing. The API
// server does not check the UID when it applies a status. Another object of the same name gets the condition
// until its owner reconciles.
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

// PatchNodeConditions sends the difference between the conditions of two versions of a Node. It does not send
// conditions of other writers, such as the kubelet, which updates the same list frequently. They cause no
// conflict. Another Node of the same name is a conflict.
func (a *Actuator) PatchNodeConditions(ctx context.Context, node, before *corev1.Node) error {
	if same(node, before) {
		return nil
	}
	named := before.DeepCopy()
	named.UID = "" // see byUID
	if err := asConflict(node, a.client.Status().Patch(ctx, node, client.StrategicMergeFrom(named))); err != nil {
		return fmt.Errorf("patching conditions of Node %s: %w", node.Name, err)
	}
	return nil
}

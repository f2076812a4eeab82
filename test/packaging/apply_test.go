// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAPIServerTakesEverything creates all objects without further dependencies, and a pod of the manager where only
// restricted pods may run.
func TestAPIServerTakesEverything(t *testing.T) {
	ctx := t.Context()
	c := client.WithFieldValidation(shared.Management.Client, metav1.FieldValidationStrict)
	for _, u := range components(t) {
		if u.GroupVersionKind().Group == "cert-manager.io" {
			continue
		}
		if err := c.Create(ctx, u); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("creating %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	// Another test has created the Namespace for the agent, which needs more permissions and allows only pods of
	// controllers.
	labels, err := json.Marshal(only(t, "Namespace").GetLabels())
	if err != nil || !bytes.Contains(labels, []byte(`"pod-security.kubernetes.io/enforce":"restricted"`)) {
		t.Fatalf("labels of the Namespace: %s, %v", labels, err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Patch(ctx, ns, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":%s}}`, labels))); err != nil {
		t.Fatal(err)
	}
	template := deployment(t).Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = namespace, "manager"
	if err := as(t, "replicaset-controller").Create(ctx, pod, client.DryRunAll); err != nil {
		t.Errorf("running the manager as a restricted pod: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// TestAPIServerTakesEverything creates all that needs nothing else installed, and
// a pod of the manager where only restricted pods may run.
func TestAPIServerTakesEverything(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p, err := plane.Start(ctx, plane.Options{Components: []plane.Component{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := client.WithFieldValidation(p.Management.Client, metav1.FieldValidationStrict)
	for _, u := range components(t) {
		if u.GroupVersionKind().Group == "cert-manager.io" {
			continue
		}
		if u.GetKind() == "Namespace" {
			labels := u.GetLabels()
			labels["pod-security.kubernetes.io/enforce"] = "restricted"
			u.SetLabels(labels)
		}
		if err := c.Create(ctx, u); err != nil {
			t.Errorf("creating %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	template := deployment(t).Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = namespace, "manager"
	if err := c.Create(ctx, pod, client.DryRunAll); err != nil {
		t.Errorf("running the manager as a restricted pod: %v", err)
	}
}

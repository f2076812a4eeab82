// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
)

// TestTrimPod keeps the fields that decide on an eviction, and the annotations of marked pods only.
func TestTrimPod(t *testing.T) {
	t.Parallel()
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ingress", UID: "u2", Controller: new(true)}
	deleted := metav1.NewTime(time.Unix(1, 0))
	meta := metav1.ObjectMeta{Namespace: "db", Name: "db-0", UID: "u1", ResourceVersion: "7", Labels: map[string]string{"app": "db"}, DeletionTimestamp: &deleted}
	asked := map[string]string{"a": "b", evictionv1.RequestedAnnotation: "2026-03-02T12:00:00Z"}
	for name, tc := range map[string]struct{ annotations, want map[string]string }{
		"Mirror": {map[string]string{"a": "b", corev1.MirrorPodAnnotationKey: "c"}, map[string]string{corev1.MirrorPodAnnotationKey: "c"}},
		"Asked":  {asked, asked},
		"Large":  {map[string]string{"a": "b"}, nil},
	} {
		pod := &corev1.Pod{ObjectMeta: meta}
		pod.Annotations = tc.annotations
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "DaemonSet", Name: "no"}, set}
		pod.Spec.NodeName, pod.Spec.Containers = "n1", []corev1.Container{{Name: "large"}}
		pod.Status.Phase, pod.Status.Message = corev1.PodRunning, "large"
		before := pod.DeepCopy()

		want := &corev1.Pod{ObjectMeta: meta}
		want.Annotations, want.OwnerReferences = tc.want, []metav1.OwnerReference{set}
		want.Spec.NodeName, want.Status.Phase = "n1", corev1.PodRunning

		if diff := cmp.Diff(want, eviction.TrimPod(pod)); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", name, diff)
		}
		if diff := cmp.Diff(before, pod); diff != "" {
			t.Errorf("%s: what was given is changed: -before, +after:\n%s", name, diff)
		}
	}
}

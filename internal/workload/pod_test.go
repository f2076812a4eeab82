// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// TestWhatIsReadOfAPodIsKept checks the fields that the transform keeps. A pod that is not scheduled yet
// belongs to the Node for which the DaemonSet controller created it.
func TestWhatIsReadOfAPodIsKept(t *testing.T) {
	t.Parallel()
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ingress", UID: "u2", Controller: new(true)}
	at := metav1.Now()
	meta := metav1.ObjectMeta{Namespace: "edge", Name: "ingress-x", UID: "u1", ResourceVersion: "7", DeletionTimestamp: &at}
	pod := &corev1.Pod{ObjectMeta: meta}
	pod.Labels = map[string]string{"app": "ingress", appsv1.ControllerRevisionHashLabelKey: "abc"}
	pod.Annotations, pod.ManagedFields = map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "DaemonSet", Name: "no"}, set}
	pod.Spec.Containers = []corev1.Container{{Name: "large"}}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}},
		}}},
	}}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "m"},
	}
	before := pod.DeepCopy()

	want := &corev1.Pod{ObjectMeta: meta}
	want.Labels, want.OwnerReferences = map[string]string{appsv1.ControllerRevisionHashLabelKey: "abc"}, []metav1.OwnerReference{set}
	want.Spec.NodeName = "n1"
	want.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}

	got, err := workload.TrimDaemonPod(pod)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v; -want, +got:\n%s", err, diff)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("what was given is changed: -before, +after:\n%s", diff)
	}
	if !workload.Ready(want) || workload.Ready(&corev1.Pod{}) || workload.NodeOf(before) != "n1" || workload.DaemonSetOf(before).UID != "u2" {
		t.Errorf("of %+v: Ready %t, on %q, of %v", before, workload.Ready(want), workload.NodeOf(before), workload.DaemonSetOf(before))
	}
}

// TestWhatIsReadOfADaemonSetIsKept checks the fields that the transform keeps.
func TestWhatIsReadOfADaemonSetIsKept(t *testing.T) {
	t.Parallel()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "ingress", UID: "u2", ResourceVersion: "8", Generation: 2, Labels: map[string]string{"a": "b"}}}
	set.Spec.UpdateStrategy.Type, set.Spec.Template.Labels = appsv1.OnDeleteDaemonSetStrategyType, map[string]string{"app": "ingress"}
	set.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1, NumberReady: 3}

	want := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "ingress", UID: "u2", ResourceVersion: "8", Generation: 2}}
	want.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	want.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1}

	got, err := workload.TrimDaemonSet(set)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v; -want, +got:\n%s", err, diff)
	}
}

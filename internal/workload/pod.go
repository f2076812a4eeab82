// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeOf returns the Node on which a pod runs or will run. The DaemonSet controller sets it in a required node
// affinity, before the scheduler binds the pod.
func NodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// Ready reports whether a pod has the condition Ready.
func Ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// DaemonSetOf returns the owner reference to the DaemonSet of an object, nil if it has none.
func DaemonSetOf(obj client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.Kind != "DaemonSet" {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != appsv1.GroupName {
		return nil
	}
	return owner
}

// TrimDaemonPod drops the fields of a DaemonSet pod that no controller reads. It keeps the owner, the Node, the
// revision, the condition Ready and the deletion timestamp. It is a transform of a NamespaceCache, as is TrimDaemonSet.
func TrimDaemonPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: trimMeta(&pod.ObjectMeta)}
	trimmed.DeletionTimestamp = pod.DeletionTimestamp
	if revision, ok := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; ok {
		trimmed.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}
	}
	if owner := DaemonSetOf(pod); owner != nil {
		trimmed.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	trimmed.Spec.NodeName = NodeOf(pod)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			trimmed.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return trimmed, nil
}

// TrimDaemonSet drops the fields of a DaemonSet that no controller reads. It keeps the update strategy and the
// state of the rollout.
func TrimDaemonSet(obj any) (any, error) {
	set, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return obj, nil
	}
	trimmed := &appsv1.DaemonSet{TypeMeta: set.TypeMeta, ObjectMeta: trimMeta(&set.ObjectMeta)}
	trimmed.Generation, trimmed.DeletionTimestamp = set.Generation, set.DeletionTimestamp
	trimmed.Spec.UpdateStrategy.Type = set.Spec.UpdateStrategy.Type
	trimmed.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: set.Status.ObservedGeneration, DesiredNumberScheduled: set.Status.DesiredNumberScheduled,
		UpdatedNumberScheduled: set.Status.UpdatedNumberScheduled,
	}
	return trimmed, nil
}

// trimMeta keeps the fields that identify an object.
func trimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

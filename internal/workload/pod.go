// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeOf is the Node that a pod runs on, or is to run on: the DaemonSet's controller says so by
// a field selector, and the scheduler puts it there.
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

// Ready reports whether a pod takes connections.
func Ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// DaemonSetOf is the DaemonSet of an object, nil if it has none.
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

// TrimDaemonPod drops what nobody reads of a pod of a DaemonSet: what stays is whose it is, on
// which Node, of which revision, and whether it is Ready or terminates. It is a transform of an
// Aside, as is TrimDaemonSet.
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

// TrimDaemonSet drops what nobody reads of a DaemonSet: what stays is how it is updated, and how
// far that has come.
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

// trimMeta is what tells an object from others.
func trimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

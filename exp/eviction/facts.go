// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// inProgressAnnotation is on a pod that another client moves after an eviction. The descheduler reads it, KubeVirt
// writes it. https://github.com/kubernetes-sigs/descheduler/tree/master/keps/1397-evictions-in-background
const inProgressAnnotation = "descheduler.alpha.kubernetes.io/eviction-in-progress"

// DrainTaints are the keys of taints that drainers set on a Node instead of a cordon.
var DrainTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}

// Draining reports whether a Node is cordoned, is being deleted, or has one of these taints.
func Draining(node *corev1.Node, taints []string) bool {
	return node.Spec.Unschedulable || !node.DeletionTimestamp.IsZero() || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && slices.Contains(taints, t.Key)
	})
}

// movable reports whether an operator can start the pod on another Node. Pods of DaemonSets and static pods cannot
// move.
func movable(pod *corev1.Pod) bool {
	return !metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey) && workload.DaemonSetOf(pod) == nil
}

// TrimPod removes the fields of a cached pod that no eviction decision reads. A pod that the guard has marked keeps its
// annotations.
func TrimPod(pod *corev1.Pod) *corev1.Pod {
	trimmed := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Labels: pod.Labels,
	}}
	trimmed.Spec.NodeName, trimmed.Status.Phase = pod.Spec.NodeName, pod.Status.Phase
	if mirror, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		trimmed.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
	}
	if !markedAt(pod).IsZero() {
		trimmed.Annotations = pod.Annotations
	}
	if owner := workload.DaemonSetOf(pod); owner != nil {
		trimmed.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return trimmed
}

// podFacts converts a pod to input of package verdict. r is the mark to look for; with nil, Marked is false.
func podFacts(pod *corev1.Pod, r *evictionv1.Request) *verdict.Pod {
	return &verdict.Pod{
		UID: string(pod.UID), Created: pod.CreationTimestamp.Time, Bound: pod.Spec.NodeName != "",
		Pending:  pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "",
		Finished: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Leaving:  !pod.DeletionTimestamp.IsZero(), MarkedAt: markedAt(pod),
		Marked: r != nil && marked(pod, *r),
	}
}

// marked reports whether the guard or another client has requested the move of a pod.
func marked(pod client.Object, r evictionv1.Request) bool {
	_, underway := pod.GetAnnotations()[inProgressAnnotation]
	return underway || hasMark(pod, r)
}

// hasMark reports whether a pod has the annotation or label of a request.
func hasMark(pod client.Object, r evictionv1.Request) bool {
	switch {
	case r.Annotation != nil:
		value, there := pod.GetAnnotations()[r.Annotation.Key]
		return there && value == r.Annotation.Value
	case r.Label != nil:
		value, there := pod.GetLabels()[r.Label.Key]
		return there && value == r.Label.Value
	default:
		return false
	}
}

// markedAt returns when the guard marked a pod, zero if it did not.
func markedAt(pod client.Object) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, pod.GetAnnotations()[evictionv1.RequestedAnnotation]) // zero after an error
	return at
}

// mark sets the annotation or label for the operator of a pod, and the time of the request, for one patch. The time
// identifies the mark as the guard's.
func mark(pod *corev1.Pod, r evictionv1.Request, since time.Time) {
	if r.Annotation != nil {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, r.Annotation.Key, r.Annotation.Value)
	}
	if r.Label != nil {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, r.Label.Key, r.Label.Value)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, evictionv1.RequestedAnnotation, since.UTC().Format(time.RFC3339Nano))
}

// unmark removes the mark of a request from a pod. A mark that another client wrote or changed stays.
func unmark(pod client.Object, r *evictionv1.RescheduleRequest) {
	if markedAt(pod).IsZero() && r.Spec.RequestedTime.IsZero() {
		return
	}
	if asks := r.Spec.Request; hasMark(pod, asks) {
		if asks.Annotation != nil {
			delete(pod.GetAnnotations(), asks.Annotation.Key)
		}
		if asks.Label != nil {
			delete(pod.GetLabels(), asks.Label.Key)
		}
	}
	delete(pod.GetAnnotations(), evictionv1.RequestedAnnotation)
}

func requestFacts(r *evictionv1.RescheduleRequest, node verdict.Node) *verdict.Request {
	if r == nil {
		return nil
	}
	q := &verdict.Request{
		Since: r.CreationTimestamp.Time, Queued: r.CreationTimestamp.Time, FirstMarked: r.Spec.RequestedTime.Time, Node: node,
		Relocation: r.Spec.Intent == evictionv1.IntentRelocation, Withdrawn: r.Spec.Intent == evictionv1.IntentWithdrawn,
	}
	if r.Spec.QueuedTime.After(q.Queued) {
		q.Queued = r.Spec.QueuedTime.Time
	}
	return q
}

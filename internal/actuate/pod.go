// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// EvictPod evicts the pod through the Eviction API, with the grace period of the pod. A PodDisruptionBudget may
// reject that. It does nothing if the pod is being deleted. Another pod of the same name is a conflict.
func (a Action) EvictPod(ctx context.Context, pod *corev1.Pod) error {
	if !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	err := a.client.SubResource("eviction").Create(ctx, pod, eviction)
	return kinds.IgnoreNoObject(a.done(ctx, "evicting", pod, err))
}

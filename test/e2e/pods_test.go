// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// runImage runs a pod of an image on the Node of sm.
func (l *lab) runImage(sm *v1alpha1.ScheduledMachine, name, image string, change ...func(*corev1.Pod)) *corev1.Pod {
	l.t.Helper()
	return l.specs().RunPod(sm, name, image, change...)
}

// runPinned runs a pod that cannot be evicted: its PodDisruptionBudget allows no eviction. It also returns the budget.
func (l *lab) runPinned(sm *v1alpha1.ScheduledMachine, name string) (*corev1.Pod, *policyv1.PodDisruptionBudget) {
	l.t.Helper()
	return l.specs().RunPinned(sm, name)
}

// survives checks that a pod was neither evicted nor deleted.
func (l *lab) survives(pod *corev1.Pod) {
	l.t.Helper()
	l.specs().WantUntouched(pod)
}

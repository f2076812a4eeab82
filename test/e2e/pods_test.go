// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// runPod runs a pod on the Node of sm.
func (l *lab) runPod(sm *v1alpha1.ScheduledMachine, name string) *corev1.Pod {
	l.t.Helper()
	return l.runImage(sm, name, "work:1") // nobody pulls it for a simulated Node
}

// runImage runs a pod of an image on the Node of sm.
func (l *lab) runImage(sm *v1alpha1.ScheduledMachine, name, image string) *corev1.Pod {
	l.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:                      l.node(sm).Name,
			TerminationGracePeriodSeconds: new(int64(5)),
			Containers:                    []corev1.Container{{Name: "main", Image: image}},
		},
	}
	ctx := timeout(l.t, patience)
	l.must(l.Client.Create(ctx, pod))
	l.must(l.Wait(ctx, pod, func() error {
		if pod.Status.Phase != corev1.PodRunning {
			return errors.New("it does not run")
		}
		return nil
	}))
	return pod
}

// runPinned runs a pod that no eviction moves: its PodDisruptionBudget allows
// none. The budget is returned, too.
func (l *lab) runPinned(sm *v1alpha1.ScheduledMachine, name string) (*corev1.Pod, *policyv1.PodDisruptionBudget) {
	l.t.Helper()
	pod := l.runPod(sm, name)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		},
	}
	ctx := timeout(l.t, patience)
	l.must(workload.Client.Create(ctx, pdb))
	l.must(workload.Wait(ctx, pdb, func() error {
		if pdb.Status.ObservedGeneration == 0 || pdb.Status.CurrentHealthy != 1 {
			return errors.New("it does not see its pod")
		}
		return nil
	}))
	return pod, pdb
}

// survives checks that a pod was neither evicted nor deleted.
func (l *lab) survives(pod *corev1.Pod) {
	l.t.Helper()
	got := &corev1.Pod{}
	err := workload.Client.Get(timeout(l.t, patience), client.ObjectKeyFromObject(pod), got)
	if err != nil || !got.DeletionTimestamp.IsZero() {
		l.t.Errorf("pod %s must not be touched: %v", pod.Name, err)
	}
}

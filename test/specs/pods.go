// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"errors"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// RunPod runs a pod of an image on the Node of sm, modified by change.
func (c *Cluster) RunPod(sm *v1alpha1.ScheduledMachine, name, image string, change ...func(*corev1.Pod)) *corev1.Pod {
	c.T.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:                      c.Node(sm).Name,
			TerminationGracePeriodSeconds: new(int64(5)),
			Containers:                    []corev1.Container{{Name: "main", Image: image}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	ctx := c.timeout()
	c.must(c.Workload.Create(ctx, pod))
	c.must(await.Object(ctx, c.Workload, pod, func() error {
		if pod.Status.Phase != corev1.PodRunning {
			return errors.New("it does not run")
		}
		return nil
	}))
	return pod
}

// RunPinned runs a pod that cannot be evicted: its PodDisruptionBudget allows no eviction. It also returns the budget.
func (c *Cluster) RunPinned(sm *v1alpha1.ScheduledMachine, name string) (*corev1.Pod, *policyv1.PodDisruptionBudget) {
	c.T.Helper()
	pod := c.RunPod(sm, name, c.Image)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		},
	}
	ctx := c.timeout()
	c.must(c.Workload.Create(ctx, pdb))
	c.must(await.Object(ctx, c.Workload, pdb, func() error {
		if pdb.Status.ObservedGeneration == 0 || pdb.Status.CurrentHealthy != 1 {
			return errors.New("it does not see its pod")
		}
		return nil
	}))
	return pod, pdb
}

// WantUntouched checks that a pod was neither evicted nor deleted.
func (c *Cluster) WantUntouched(pod *corev1.Pod) {
	c.T.Helper()
	got := &corev1.Pod{}
	err := c.Workload.Get(c.timeout(), client.ObjectKeyFromObject(pod), got)
	if err != nil || !got.DeletionTimestamp.IsZero() {
		c.T.Errorf("pod %s must not be touched: %v", pod.Name, err)
	}
}

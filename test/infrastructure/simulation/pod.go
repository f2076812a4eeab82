// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// StopAnnotation is how a simulated pod reacts to SIGTERM: StopNever, or a duration after which it ends, at most its
// grace period. Without it a pod ends at once.
const StopAnnotation = "plane.cluster.x-k8s.io/stop"

// StopNever keeps a deleted pod for ever, as a process in uninterruptible sleep does.
const StopNever = "Never"

func (c *Cluster) work(ctx context.Context) {
	for {
		key, quit := c.queue.Get()
		if quit {
			return
		}
		after, err := c.syncPod(ctx, key)
		switch {
		case err != nil:
			c.queue.AddRateLimited(key)
		case after > 0:
			c.queue.AddAfter(key, after)
		default:
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

func (c *Cluster) syncPod(ctx context.Context, key string) (again time.Duration, err error) {
	obj, exists, err := c.pods.GetByKey(key)
	if err != nil || !exists {
		return 0, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || !c.alive(pod.Spec.NodeName) {
		return 0, nil
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return c.stop(ctx, pod)
	case pod.Status.Phase == corev1.PodPending, pod.Status.Phase == "":
		return 0, c.run(ctx, pod)
	default:
		return 0, nil
	}
}

// stop removes a pod when its process would have ended.
func (c *Cluster) stop(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	at, ends := stopsAt(pod)
	if !ends {
		return 0, nil
	}
	if wait := at.Sub(c.clock.Now()); wait > 0 {
		return wait, nil
	}
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	return 0, err
}

// stopsAt returns when a deleted pod ends. DeletionTimestamp is the end of its grace period.
func stopsAt(pod *corev1.Pod) (at time.Time, ends bool) {
	value := pod.Annotations[StopAnnotation]
	if value == StopNever {
		return time.Time{}, false
	}
	after, err := time.ParseDuration(value)
	if err != nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}, true
	}
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	return pod.DeletionTimestamp.Add(min(after, grace) - grace), true
}

func (c *Cluster) run(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"status": running(pod, metav1.NewTime(c.clock.Now()))})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func running(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	ip := Address(244, cache.MetaObjectToName(pod).String())
	if pod.Spec.HostNetwork {
		ip = Address(10, pod.Spec.NodeName)
	}
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, HostIP: Address(10, pod.Spec.NodeName), PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
	}
	for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, ct := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: ct.Name, Image: ct.Image, ImageID: ct.Image, ContainerID: "simulated://" + MachineID(string(pod.UID)+ct.Name),
			Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}

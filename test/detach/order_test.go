// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/simulation"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

// TestDaemonSetsAreStoppedInOrder: a machine leaves. Its pods are drained, and then its DaemonSets' pods are stopped in
// order.
func TestDaemonSetsAreStoppedInOrder(t *testing.T) {
	t.Parallel()
	f := newFarmOf(t, "order", "127.0", 1, plane.ClusterOptions{})
	f.runDaemonSets()
	f.RunPod(f.machines[0], "work", f.Image)
	f.waitRunning(4)
	ends := f.followPods()
	machine := f.machine(0)
	f.SetSchedule(f.machines[0], specs.Closed())
	f.waitGone(machine)
	want := []string{"work is stopped", "work is gone", "ingress is stopped", "ingress is gone", "shipper is stopped", "shipper is gone"}
	if got := ends(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("pods ended so: %q, want %q first", got, want)
	}
}

// TestDaemonSetsOfACordonedNodeAreStoppedInOrder: the machine stays, and no hook of 5-Spot holds it. After an uncordon
// the pods come back.
func TestDaemonSetsOfACordonedNodeAreStoppedInOrder(t *testing.T) {
	t.Parallel()
	f := newFarmOf(t, "unheld", "127.0", 1, plane.ClusterOptions{})
	f.runDaemonSets()
	f.waitRunning(3)
	ends := f.followPods()
	cordon := func(on bool) {
		node := f.Node(f.machines[0])
		before := node.DeepCopy()
		node.Spec.Unschedulable = on
		f.must(f.Workload.Patch(f.step(), node, client.MergeFrom(before), client.FieldOwner("kubectl-cordon")))
	}
	cordon(true)
	want := []string{"ingress is stopped", "ingress is gone", "shipper is stopped", "shipper is gone"}
	f.until(func(context.Context) error {
		if got := ends(); !slices.Equal(got, want) {
			return fmt.Errorf("pods ended so: %q, want %q", got, want)
		}
		return nil
	})
	cordon(false)
	f.waitRunning(3)
}

// runDaemonSets creates three DaemonSets. Only two of them have a priority.
func (f *farm) runDaemonSets() {
	f.Helper()
	for app, priority := range map[string]string{"ingress": "10", "shipper": "-1", "agent": ""} {
		f.must(f.Workload.Create(f.step(), f.daemonSet(app, priority)))
	}
}

// waitRunning waits until n pods run.
func (f *farm) waitRunning(n int) {
	f.Helper()
	f.until(func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := f.Workload.List(ctx, pods, client.InNamespace(f.Namespace))
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		if err == nil && len(pods.Items) != n {
			err = fmt.Errorf("%d pods run", len(pods.Items))
		}
		return err
	})
}

// daemonSet returns a DaemonSet whose pods take two seconds to stop.
func (f *farm) daemonSet(app, priority string) *appsv1.DaemonSet {
	labels := map[string]string{"app": app}
	annotations := map[string]string{simulation.StopAnnotation: "2s"}
	if priority != "" {
		annotations[v1alpha1.PodDeletionPriorityAnnotation] = priority
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: app},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(5)), Containers: []corev1.Container{{Name: "main", Image: f.Image}},
				},
			},
		},
	}
}

// followPods watches pods. It returns a function that lists their creations and ends since.
func (f *farm) followPods() (ends func() []string) {
	f.Helper()
	var mu sync.Mutex
	var all []string
	pods := &corev1.PodList{}
	f.must(f.Workload.List(f.step(), pods, client.InNamespace(f.Namespace)))
	watcher, err := f.Workload.Watch(f.Context(), &corev1.PodList{}, client.InNamespace(f.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: pods.ResourceVersion}})
	f.must(err)
	go func() {
		defer watcher.Stop()
		for e := range watcher.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			said := ""
			switch {
			case e.Type == watch.Added:
				said = "comes"
			case e.Type == watch.Deleted:
				said = "is gone"
			case !pod.DeletionTimestamp.IsZero():
				said = "is stopped"
			}
			if said = pod.Labels["app"] + " " + said; strings.HasSuffix(said, " ") {
				continue
			}
			mu.Lock()
			if len(all) == 0 || all[len(all)-1] != said {
				all = append(all, said)
			}
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

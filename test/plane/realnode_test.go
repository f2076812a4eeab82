// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

func TestRealNodeRunsPodAndLeavesNothing(t *testing.T) {
	t.Parallel()
	if err := shared.RealNodes(); err != nil {
		t.Skip(err)
	}
	ctx := timeout(t, 3*time.Minute)
	w, err := shared.NewWorkload(ctx, plane.WorkloadOptions{Name: "real", Namespace: "real", RealNodes: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.ImportImage(ctx, "plane.local/work:1", shared.Bin("pause")); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	m, err := shared.NewMachine(ctx, w, "box", func(_ *clusterv1.Machine, pm *infrav1.PlaneMachine) { pm.Spec.Backend = infrav1.Real })
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}}
	if err := w.Wait(ctx, node, func() error { return ready(node.Status.Conditions) }); err != nil {
		t.Fatal(err)
	}
	t.Logf("Node Ready after %v", time.Since(begin))
	if err := shared.WaitMachine(ctx, m, clusterv1.MachinePhaseRunning); err != nil {
		t.Fatal(err)
	}
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(id)); m.Status.NodeInfo.MachineID != want {
		t.Errorf("a real node has the machine ID of this machine: got %q, want %q", m.Status.NodeInfo.MachineID, want)
	}
	begin = time.Now()
	pod := runPod(t, w, "work", func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "plane.local/work:1", corev1.PullNever
	})
	t.Logf("pod Running after %v", time.Since(begin))
	box, err := shared.RealNode(client.ObjectKeyFromObject(m))
	if err != nil {
		t.Fatal(err)
	}
	processes, err := box.Processes()
	if err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	if err := shared.Management.Client.Delete(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WaitGone(ctx, pod), shared.Management.WaitGone(ctx, m), w.WaitGone(ctx, node)); err != nil {
		t.Fatal(err)
	}
	t.Logf("Machine, Node and pod gone after %v", time.Since(begin))
	if left, err := box.Traces(); err != nil || len(left) > 0 {
		t.Errorf("a real node must leave nothing behind: %v, %v", left, err)
	}
	for _, p := range processes {
		if p.Alive() {
			t.Errorf("%s must have ended", p.Name)
		}
	}
}

func ready(conditions []corev1.NodeCondition) error {
	for _, c := range conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("it is not Ready")
}

// runPod makes a pod and returns when it runs. Without mutate it is bound to
// wherever the scheduler likes.
func runPod(t *testing.T, w *plane.Workload, name string, mutate func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	ctx := timeout(t, time.Minute)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(5)),
			Containers:                    []corev1.Container{{Name: "main", Image: plane.PauseImage, ImagePullPolicy: corev1.PullNever}},
		},
	}
	if mutate != nil {
		mutate(pod)
	}
	if err := w.Client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	err := w.Wait(ctx, pod, func() error {
		if pod.Status.Phase != corev1.PodRunning {
			return errors.New("it is " + string(pod.Status.Phase))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

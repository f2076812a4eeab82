// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

func TestRealNodeRunsPodAndLeavesNothing(t *testing.T) {
	t.Parallel()
	if err := shared.RealNodes(); err != nil {
		t.Skip(err)
	}
	ctx := timeout(t, time.Minute)
	w, err := shared.NewWorkload(ctx, plane.WorkloadOptions{Name: "real", Namespace: "real", RealNodes: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.ImportImage(ctx, "plane.local/work:1", shared.Bin("pause")); err != nil {
		t.Fatal(err)
	}
	before := delegated(t)
	t.Cleanup(func() {
		if diff := cmp.Diff(before, delegated(t)); diff != "" {
			t.Errorf("the control groups of this machine must hand on the controllers that they did: -before, +after:\n%s", diff)
		}
	})
	shared.EachCgroupVersion(t, func(t *testing.T, version infrav1.CgroupVersion) {
		t.Helper()
		t.Parallel()
		testRealNode(t, w, version)
	})
}

func testRealNode(t *testing.T, w *plane.Workload, version infrav1.CgroupVersion) {
	t.Helper()
	ctx := timeout(t, 3*time.Minute)
	name := "box-" + strings.ToLower(string(version))
	begin := time.Now()
	m, err := shared.NewMachine(ctx, w, name, func(_ *clusterv1.Machine, pm *infrav1.PlaneMachine) {
		pm.Spec.Backend, pm.Spec.Cgroups = infrav1.Real, version
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.WaitMachine(ctx, m, clusterv1.MachinePhaseRunning); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.Wait(ctx, node, func() error { return ready(node.Status.Conditions) }); err != nil {
		t.Fatal(err)
	}
	t.Logf("Node Ready after %v", time.Since(begin))
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(id)); node.Status.NodeInfo.MachineID != want {
		t.Errorf("a real node has the machine ID of this machine: got %q, want %q", node.Status.NodeInfo.MachineID, want)
	}
	begin = time.Now()
	pod := runPod(t, w, "work-"+name, func(p *corev1.Pod) {
		p.Spec.NodeName = name
		c := &p.Spec.Containers[0]
		c.Image, c.ImagePullPolicy = "plane.local/work:1", corev1.PullNever
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
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
	wantGroups(t, processes, string(pod.UID), version)
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

// wantGroups checks that a process is in a pod's cgroups of one version. Cgroups of version 2 may exist beside version
// 1.
func wantGroups(t *testing.T, processes []realnode.Process, pod string, version infrav1.CgroupVersion) {
	t.Helper()
	found := map[infrav1.CgroupVersion]bool{}
	for _, p := range processes {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
		for line := range strings.Lines(string(text)) {
			switch {
			case !strings.Contains(line, "/kubepods/") || !strings.Contains(line, pod):
			case strings.HasPrefix(line, "0::"):
				found[infrav1.CgroupV2] = true
			default:
				found[infrav1.CgroupV1] = true
			}
		}
	}
	if !found[version] || version == infrav1.CgroupV2 && found[infrav1.CgroupV1] {
		t.Errorf("pod %s of a node that sees groups of %s is in those of %v", pod, version, slices.Collect(maps.Keys(found)))
	}
}

// delegated returns the controllers that cgroups of version 2 delegate.
func delegated(t *testing.T) map[string]string {
	t.Helper()
	controllers := map[string]string{}
	for _, pattern := range []string{"/sys/fs/cgroup/cgroup.subtree_control", "/sys/fs/cgroup/*/cgroup.subtree_control"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err == nil && !strings.Contains(f, "/plane-") {
				controllers[f] = string(text)
			}
		}
	}
	return controllers
}

func ready(conditions []corev1.NodeCondition) error {
	for _, c := range conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Errorf("it is not Ready: %s: %s", c.Reason, c.Message)
		}
		if c.Type == corev1.NodeReady {
			return nil
		}
	}
	return errors.New("it has not said whether it is Ready")
}

// runPod creates a pod and returns when it runs. Without mutate, the scheduler selects the Node.
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

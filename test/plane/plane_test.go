// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// shared is the plane for all tests that do not damage it.
var shared *plane.Plane

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		helper()
	}
	begin := time.Now()
	os.Exit(plane.Main(m, plane.Options{Components: plane.Everything()}, func(p *plane.Plane) {
		shared = p
		fmt.Println("plane with all components ready after", time.Since(begin).Round(time.Millisecond))
	}))
}

func timeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestMachineRunsAndIsDrained(t *testing.T) {
	t.Parallel()
	ctx := timeout(t, 2*time.Minute)
	begin := time.Now()
	w, err := shared.NewWorkload(ctx, plane.WorkloadOptions{Name: "runs", Namespace: "runs"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("workload cluster connected after %v", time.Since(begin))
	begin = time.Now()
	m, err := shared.NewMachine(ctx, w, "box", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.WaitMachine(ctx, m, clusterv1.MachinePhaseRunning); err != nil {
		t.Fatal(err)
	}
	t.Logf("Machine Running after %v", time.Since(begin))
	if m.Status.NodeInfo == nil || m.Status.NodeInfo.MachineID == "" || m.Status.NodeRef.Name != "box" {
		t.Errorf("a Machine must know its Node and its machine ID: %+v %+v", m.Status.NodeRef, m.Status.NodeInfo)
	}
	pod := runPod(t, w, "guarded", nil)
	budget := guard(t, w, "guarded")
	begin = time.Now()
	if err := shared.Management.Client.Delete(ctx, m); err != nil {
		t.Fatal(err)
	}
	err = shared.Management.Wait(ctx, m, func() error { return says(m.Status.Conditions, clusterv1.MachineDeletingCondition, "guarded") })
	if err != nil {
		t.Fatalf("a disruption budget must hold up the drain, and the Machine must say so: %v", err)
	}
	if err := w.Client.Delete(ctx, budget); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}}
	for _, err := range []error{w.WaitGone(ctx, pod), shared.Management.WaitGone(ctx, m), w.WaitGone(ctx, node)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("Machine gone after %v, blocked once", time.Since(begin))
	evictedByCore(t, w)
}

// guard creates a disruption budget that allows no disruption, and waits until it is in force.
func guard(t *testing.T, w *plane.Workload, app string) *policyv1.PodDisruptionBudget {
	t.Helper()
	ctx := timeout(t, 30*time.Second)
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	if err := w.Client.Create(ctx, budget); err != nil {
		t.Fatal(err)
	}
	err := w.Wait(ctx, budget, func() error {
		if budget.Status.ObservedGeneration == 0 {
			return fmt.Errorf("nobody looked at it yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return budget
}

func says(conditions []metav1.Condition, kind, word string) error {
	for _, c := range conditions {
		if c.Type == kind && strings.Contains(c.Message, word) {
			return nil
		}
	}
	return fmt.Errorf("condition %s says nothing of %s: %v", kind, word, conditions)
}

func evictedByCore(t *testing.T, w *plane.Workload) {
	t.Helper()
	events, err := w.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	codes := map[int32]int{}
	for _, e := range events {
		if e.ObjectRef != nil && e.ObjectRef.Subresource == "eviction" && e.User.Username == "cluster-api" {
			codes[e.ResponseStatus.Code]++
		}
	}
	if codes[429] == 0 || codes[201] != 1 {
		t.Errorf("the audit log must show refused evictions and then one that was not: %v", codes)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	ctx := timeout(t, 2*time.Minute)
	w, err := shared.NewWorkload(ctx, plane.WorkloadOptions{
		Name: "faults", Namespace: "faults", NodeLeaseSeconds: 4, ClusterOptions: plane.ClusterOptions{NodeMonitorGrace: 10 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := shared.NewMachine(ctx, w, "lame", func(_ *clusterv1.Machine, pm *infrav1.PlaneMachine) {
		pm.Spec.MachineID, pm.Spec.NodeName, pm.Spec.Faults.Provision = "0123456789abcdef", "other-name", infrav1.Fail
	})
	if err != nil {
		t.Fatal(err)
	}
	pm := &infrav1.PlaneMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "faults", Name: "lame"}}
	if err := shared.Management.Wait(ctx, pm, func() error { return says(pm.Status.Conditions, "Ready", "asked to fail") }); err != nil {
		t.Fatal(err)
	}
	change(t, pm, func() { pm.Spec.Faults.Provision = "" })
	if err := shared.WaitMachine(ctx, m, clusterv1.MachinePhaseRunning); err != nil {
		t.Fatal(err)
	}
	if m.Status.NodeRef.Name != "other-name" || m.Status.NodeInfo.MachineID != "0123456789abcdef" {
		t.Errorf("the PlaneMachine chooses name and machine ID: %+v %+v", m.Status.NodeRef, m.Status.NodeInfo)
	}
	pod := runPod(t, w, "stubborn", func(p *corev1.Pod) {
		p.Annotations = map[string]string{"plane.cluster.x-k8s.io/stop": "Never"}
	})
	if err := w.Client.Delete(ctx, pod); err != nil {
		t.Fatal(err)
	}
	change(t, pm, func() { pm.Spec.Faults.Heartbeat, pm.Spec.Faults.Deletion = infrav1.Hang, infrav1.Hang })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other-name"}}
	err = w.Wait(ctx, node, func() error {
		if len(node.Spec.Taints) == 0 {
			return fmt.Errorf("a silent Node must be tainted")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Errorf("a pod that never stops must still be there: %v", err)
	}
	if err := shared.Management.Client.Delete(ctx, pm); err != nil {
		t.Fatal(err)
	}
	if err := shared.Management.Wait(ctx, pm, func() error { return says(pm.Status.Conditions, "Ready", "asked to Hang") }); err != nil {
		t.Fatal(err)
	}
	change(t, pm, func() { pm.Spec.Faults.Deletion = "" })
	if err := shared.Management.WaitGone(ctx, pm); err != nil {
		t.Fatal(err)
	}
}

func change(t *testing.T, obj client.Object, f func()) {
	t.Helper()
	before, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		t.Fatalf("%T is not an object", obj)
	}
	f()
	if err := shared.Management.Client.Patch(timeout(t, 10*time.Second), obj, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func TestTwoPlanesSideBySide(t *testing.T) {
	t.Parallel()
	ctx := timeout(t, time.Minute)
	begin := time.Now()
	other, err := plane.Start(ctx, plane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("plane with core and provider ready after %v, %s", time.Since(begin), memory(t, other.Dir))
	if err := other.Management.EnsureNamespace(ctx, "only-there"); err != nil {
		t.Fatal(err)
	}
	err = shared.Management.Client.Get(ctx, client.ObjectKey{Name: "only-there"}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("planes must share nothing: %v", err)
	}
	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := commandLines(t, other.Dir); len(left) > 0 {
		t.Errorf("Stop must end everything: %v", left)
	}
	if _, err := os.Stat(other.Dir); !os.IsNotExist(err) {
		t.Errorf("Stop must remove a temporary directory: %v", err)
	}
}

// memory returns the total resident memory of the processes of a plane.
func memory(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `ps -eo rss,args | awk -v d="$0" 'index($0, d) && !/awk/ {n += $1} END {print int(n/1024) " MB"}'`, dir).Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

func TestWebhooksDefaultAndValidate(t *testing.T) {
	t.Parallel()
	ctx := timeout(t, time.Minute)
	m := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bare"},
		Spec: clusterv1.MachineSpec{ClusterName: "nobody", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("data")}, InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "PlaneMachine", Name: "bare",
		}},
	}
	if err := shared.Management.Client.Create(ctx, m); err != nil {
		t.Fatal(err)
	}
	if m.Labels[clusterv1.ClusterNameLabel] != "nobody" {
		t.Errorf("the mutating webhook must label the Machine: %v", m.Labels)
	}
	m.Spec.ClusterName = "somebody"
	if err := shared.Management.Client.Update(ctx, m); err == nil {
		t.Error("the validating webhook must refuse another Cluster")
	}
	out, err := shared.Management.Kubectl(ctx, "get", "machines.v1beta1.cluster.x-k8s.io", "bare", "-o", "jsonpath={.apiVersion}")
	if err != nil || out != "cluster.x-k8s.io/v1beta1" {
		t.Errorf("the conversion webhook must work: %q %v", out, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// shared is the plane of all tests that do not break it.
var shared *plane.Plane

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		helper()
	}
	os.Exit(plane.Main(m, plane.Options{Components: plane.Everything()}, func(p *plane.Plane) { shared = p }))
}

func timeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestMachineRunsAndLeaves(t *testing.T) {
	ctx := timeout(t, time.Minute)
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
	begin = time.Now()
	if err := shared.Management.Client.Delete(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := shared.Management.WaitGone(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := w.WaitGone(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}}); err != nil {
		t.Fatal(err)
	}
	t.Logf("Machine gone after %v", time.Since(begin))
	_ = fmt.Sprint
}

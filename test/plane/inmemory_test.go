// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestInMemoryWorkerRunsAndLeaves(t *testing.T) {
	t.Parallel()
	ctx := timeout(t, 2*time.Minute)
	begin := time.Now()
	c, err := shared.NewInMemory(ctx, "memory", "memory")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("connected after %v", time.Since(begin))
	begin = time.Now()
	m, err := shared.NewInMemoryMachine(ctx, c, "worker")
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.WaitMachine(ctx, m, clusterv1.MachinePhaseRunning); err != nil {
		t.Fatal(err)
	}
	t.Logf("worker Running after %v", time.Since(begin))
	if err := c.Client.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, &corev1.Node{}); err != nil {
		t.Errorf("the Node must be in the in-memory cluster: %v", err)
	}
	if err := shared.Management.Client.Delete(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := shared.Management.WaitGone(ctx, m); err != nil {
		t.Fatal(err)
	}
}

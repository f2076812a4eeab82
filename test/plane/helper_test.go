// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// helperEnv makes this test binary start a plane in the given directory, with real nodes if possible, and wait.
const helperEnv = "PLANE_TEST_HELPER_DIR"

// helperReady is the output of the helper when it waits for SIGKILL.
const helperReady = "ready"

func helper() {
	if err := startHelper(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(helperReady)
	select {}
}

func startHelper() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p, err := plane.Start(ctx, plane.Options{Dir: os.Getenv(helperEnv)})
	if err != nil || p.RealNodes() != nil {
		return err
	}
	w, err := p.NewWorkload(ctx, plane.WorkloadOptions{Name: "helper", RealNodes: true})
	if err != nil {
		return err
	}
	var machines []*clusterv1.Machine
	for _, version := range cgroupVersions() {
		m, err := p.NewMachine(ctx, w, helperMachine(version), func(_ *clusterv1.Machine, pm *infrav1.PlaneMachine) {
			pm.Spec.Backend, pm.Spec.Cgroups = infrav1.Real, version
		})
		if err != nil {
			return err
		}
		machines = append(machines, m)
	}
	for _, m := range machines {
		if err := p.WaitMachine(ctx, m, clusterv1.MachinePhaseRunning); err != nil {
			return err
		}
	}
	return nil
}

// cgroupVersions returns the cgroup versions that real nodes can use here.
func cgroupVersions() []infrav1.CgroupVersion {
	all := []infrav1.CgroupVersion{infrav1.CgroupV1, infrav1.CgroupV2}
	return slices.DeleteFunc(all, func(v infrav1.CgroupVersion) bool { return realnode.SupportedCgroups(v) != nil })
}

func helperMachine(version infrav1.CgroupVersion) string {
	return "helper-" + strings.ToLower(string(version))
}

func TestEverythingDiesWithItsParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != helperReady {
		_ = cmd.Process.Kill()
		t.Fatalf("the helper must start: %s", lines.Text())
	}
	running := len(commandLines(t, dir))
	if running < 5 {
		t.Fatalf("the helper must run etcd, API server, controller manager and two managers, found %d processes", running)
	}
	var nodes []plane.RealNode
	for _, version := range cgroupVersions() {
		node, err := plane.RealNodeOf(dir, client.ObjectKey{Namespace: "default", Name: helperMachine(version)})
		if err != nil {
			t.Log("without a real node:", err)
			continue
		}
		nodes = append(nodes, node)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	begin := time.Now()
	err = plane.Until(timeout(t, 30*time.Second), func(context.Context) error {
		if left := commandLines(t, dir); len(left) > 0 {
			return fmt.Errorf("processes survive: %v", left)
		}
		for _, node := range nodes {
			left, err := node.Traces()
			if err != nil || len(left) > 0 {
				return fmt.Errorf("a real node leaves %v: %w", left, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d processes gone %v after SIGKILL of their parent", running, time.Since(begin))
}

func commandLines(t *testing.T, s string) map[int]string {
	t.Helper()
	lines, err := plane.CommandLines(s)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

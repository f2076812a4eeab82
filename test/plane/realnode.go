// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/image"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
)

// RealNodes returns why PlaneMachines with the Real backend cannot run here, or nil. Tests skip with this reason.
func (p *Plane) RealNodes() error { return realnode.Supported(p.bin) }

// EachCgroupVersion runs a test of real nodes once for each cgroup version. It skips versions that this machine does
// not support, with the reason. It fails if real nodes run here but no version is supported.
func (p *Plane) EachCgroupVersion(t *testing.T, test func(*testing.T, infrav1.CgroupVersion)) {
	t.Helper()
	if err := p.RealNodes(); err != nil {
		t.Skip(err)
	}
	can := false
	for _, version := range []infrav1.CgroupVersion{infrav1.CgroupV1, infrav1.CgroupV2} {
		err := realnode.SupportedCgroups(version)
		can = can || err == nil
		t.Run("cgroup-"+strings.ToLower(string(version)), func(t *testing.T) {
			if err != nil {
				t.Skip(err)
			}
			test(t, version)
		})
	}
	if !can {
		t.Error("real nodes must run with one version of control groups at least")
	}
}

// ImportImage creates the image ref from one static binary, its entry point, and loads it into all real nodes of the
// plane, present and future. Pods use it with imagePullPolicy Never.
func (p *Plane) ImportImage(ctx context.Context, ref, binary string) error {
	var b bytes.Buffer
	if err := image.Write(&b, ref, binary); err != nil {
		return fmt.Errorf("making image %s: %w", ref, err)
	}
	archive := filepath.Join(p.Dir, "images", strings.NewReplacer("/", "-", ":", "-").Replace(ref)+".tar")
	if err := os.MkdirAll(filepath.Dir(archive), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
		return err
	}
	nodes, err := filepath.Glob(filepath.Join(p.Dir, "nodes", "*"))
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := realnode.Import(ctx, p.bin, n, archive); err != nil {
			return err
		}
	}
	return nil
}

// PauseImage is an image that real nodes have from the start. It does nothing, or uses one core with the argument "burn".
const PauseImage = "plane.local/pause:1"

// RealNode is the node of a PlaneMachine with the Real backend on this machine.
type RealNode struct{ dir string }

// RealNode returns the node of a PlaneMachine, which must exist.
func (p *Plane) RealNode(machine client.ObjectKey) (RealNode, error) {
	return RealNodeOf(p.Dir, machine)
}

// RealNodeOf is RealNode for callers that have only the directory of a plane.
func RealNodeOf(dir string, machine client.ObjectKey) (RealNode, error) {
	own, err := filepath.EvalSymlinks(filepath.Join(dir, "nodes", machine.Namespace+"-"+machine.Name))
	return RealNode{dir: own}, err
}

// Processes returns kubelet, containerd, and all their descendants, also in pods.
func (n RealNode) Processes() ([]realnode.Process, error) {
	wardens, err := CommandLines("\x00" + n.dir + "\x00")
	if err != nil {
		return nil, err
	}
	var all []realnode.Process
	for pid := range wardens {
		all = append(all, realnode.Below(pid)...)
	}
	return all, nil
}

// InContainer returns the first process of a container, by the container ID in the status of its pod.
func (n RealNode) InContainer(id string) (realnode.Process, error) {
	processes, err := n.Processes()
	if err != nil {
		return realnode.Process{}, err
	}
	_, own, _ := strings.Cut(id, "://")
	i := slices.IndexFunc(processes, func(p realnode.Process) bool {
		group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
		return own != "" && err == nil && strings.Contains(string(group), own)
	})
	if i < 0 {
		return realnode.Process{}, fmt.Errorf("no process is in container %q", id)
	}
	return processes[i], nil
}

// Traces lists processes, mounts, cgroups and files of the node on this machine.
func (n RealNode) Traces() ([]string, error) {
	lines, err := CommandLines(n.dir)
	if err != nil {
		return nil, err
	}
	traces := slices.Collect(maps.Values(lines))
	group := realnode.Group(n.dir)
	for _, pattern := range []string{n.dir, "/sys/fs/cgroup/" + group, "/sys/fs/cgroup/*/" + group} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		traces = append(traces, found...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, n.dir) {
			traces = append(traces, line)
		}
	}
	return traces, nil
}

// CommandLines returns the command lines on this machine that contain s, by PID. A zero byte ends each argument.
func CommandLines(s string) (map[int]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	lines := map[int]string{}
	for _, f := range files {
		line, err := os.ReadFile(f) //nolint:gosec // a file of the kernel
		if err != nil || !strings.Contains(string(line), s) {
			continue // The process may have ended.
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, err
		}
		lines[pid] = string(line)
	}
	return lines, nil
}

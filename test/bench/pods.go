// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// podTree is a tree of cgroup v2 with the names of the kubelet. Its processes are real.
type podTree struct{ root string }

// newPodTree creates a tree below the machine's.
func newPodTree() (*podTree, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			t := &podTree{root: filepath.Join(f[1], fmt.Sprintf("5spot-bench-%d", os.Getpid()))}
			if err := os.Mkdir(t.root, 0o755); err != nil { //nolint:gosec // like all cgroups
				return nil, unmeasured("creating a cgroup: %v", err)
			}
			return t, nil
		}
	}
	return nil, unmeasured("this machine has no cgroup v2")
}

func (t *podTree) pod(name string) string { return filepath.Join(t.root, "kubepods/burstable", name) }

// start starts a program in a pod.
func (t *podTree) start(ctx context.Context, pod string, out *os.File, argv ...string) (*exec.Cmd, error) {
	path := filepath.Join(t.pod(pod), "container")
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // like all cgroups
		return nil, err
	}
	cgroup, err := os.Open(path) //nolint:gosec // a cgroup of ours
	if err != nil {
		return nil, err
	}
	defer func() { _ = cgroup.Close() }()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // programs of ours
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	return cmd, cmd.Start()
}

// gone reports whether a pod has no process.
func (t *podTree) gone(pod string) bool {
	events, err := os.ReadFile(filepath.Join(t.pod(pod), "cgroup.events"))
	return err != nil || strings.Contains(string(events), "populated 0")
}

// remove kills all processes and removes the tree.
func (t *podTree) remove() error {
	_ = os.WriteFile(filepath.Join(t.root, "cgroup.kill"), []byte("1"), 0)
	var all []string
	err := filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	for _, path := range slices.Backward(all) {
		for try := 0; errors.Is(unix.Rmdir(path), unix.EBUSY) && try < 1000; try++ {
			time.Sleep(time.Millisecond) //nolint:forbidigo // until the last process has left
		}
	}
	return err
}

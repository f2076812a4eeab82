// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// ownGroup has the node's own programs, by the node's path: in version 2 a group that delegates controllers has no
// processes.
const ownGroup = cgroupMount + "/node"

// groups returns the paths of the node's control groups, as its warden sees them.
func (s Spec) groups() ([]string, error) {
	if s.Cgroups != infrav1.CgroupV2 {
		mounts, err := readCgroupMounts()
		return mounts.groups(s.Dir), err
	}
	// This is a copy of the existing mount, which the node's mount will replace. A new mount would change its options
	// for the whole machine. It is closed when the warden ends.
	tree, err := unix.OpenTree(unix.AT_FDCWD, s.Unified, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("copying mount %s: %w", s.Unified, err)
	}
	return []string{fmt.Sprintf("/proc/self/fd/%d/%s", tree, Group(s.Dir))}, nil
}

func (s Spec) makeCgroups(groups []string) error {
	for _, g := range groups {
		if err := os.MkdirAll(g, 0o755); err != nil { //nolint:gosec // world-readable
			return err
		}
	}
	if s.Cgroups == infrav1.CgroupV2 {
		return mountGroup(groups[0])
	}
	return nil
}

// mountGroup makes a group of version 2 the root of the node's view, by a cgroup namespace. A kubelet and runc delegate
// all controllers from the root down. They then delegate the controllers of that group, and the other groups of the
// machine do not change.
func mountGroup(group string) error {
	if err := os.Mkdir(filepath.Join(group, filepath.Base(ownGroup)), 0o755); err != nil { //nolint:gosec // world-readable
		return err
	}
	// The new mount would hide it, but kubelets also list hidden mounts.
	if err := unix.Unmount(cgroupMount, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", cgroupMount, err)
	}
	mount := exec.Command("mount", "-t", "cgroup2", "cgroup2", cgroupMount) //nolint:noctx // it does not wait
	opened, err := startIn(group, mount)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	if out, err := mount.CombinedOutput(); err != nil {
		return fmt.Errorf("mounting %s: %w: %s", cgroupMount, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// startIn starts a command in a group of version 2, which becomes the root of all groups that it and its children see.
// The caller closes the group after the start.
func startIn(group string, cmd *exec.Cmd) (io.Closer, error) {
	f, err := os.Open(group) //nolint:gosec // a directory of the kernel
	if err != nil {
		return nil, err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	a := cmd.SysProcAttr
	a.UseCgroupFD, a.CgroupFD, a.Unshareflags = true, int(f.Fd()), a.Unshareflags|unix.CLONE_NEWCGROUP
	return f, nil
}

// startProgram starts a program of the node.
func (s Spec) startProgram(cmd *exec.Cmd) error {
	if s.Cgroups != infrav1.CgroupV2 {
		return cmd.Start()
	}
	const enter = "echo 0 >" + ownGroup + `/cgroup.procs && exec "$@"`
	cmd.Args = append([]string{"sh", "-c", enter, "sh", cmd.Path}, cmd.Args[1:]...)
	sh, err := exec.LookPath("sh")
	if err != nil {
		return err
	}
	cmd.Path = sh
	opened, err := startIn(cgroupMount, cmd)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	return cmd.Start()
}

// removeGroup removes a control group and its children first. A group is a directory with files that cannot be removed.
func removeGroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, d := range slices.Backward(dirs) {
		if e := os.Remove(d); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

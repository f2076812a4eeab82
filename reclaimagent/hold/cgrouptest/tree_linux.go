// SPDX-License-Identifier: Apache-2.0

// Package cgrouptest creates trees of cgroup v2 with real processes, for tests.
package cgrouptest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is a private tree of cgroup v2. It stands for the tree of a host.
type Tree struct {
	t *testing.T
	// Root is the path of the tree.
	Root string
	// processes are all running processes, by cgroup.
	processes map[string][]*exec.Cmd
}

// Mount returns where cgroup v2 is mounted and writable. It skips the test if that is nowhere.
func Mount(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may create cgroups")
	}
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = mounts.Close() }()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) > 2 && f[2] == "cgroup2" && unix.Access(filepath.Join(f[1], "cgroup.procs"), unix.W_OK) == nil {
			return f[1]
		}
	}
	t.Skip("no writable cgroup v2 is mounted")
	return ""
}

var created atomic.Int64

// New creates a Tree. The end of the test removes it.
func New(t *testing.T) *Tree {
	t.Helper()
	name := fmt.Sprintf("fivespot-hold-%d-%d", os.Getpid(), created.Add(1))
	tree := &Tree{t: t, Root: filepath.Join(Mount(t), name), processes: map[string][]*exec.Cmd{}}
	if err := os.Mkdir(tree.Root, 0o755); err != nil { //nolint:gosec // other users must reach it
		t.Fatal(err)
	}
	t.Cleanup(tree.Remove)
	return tree
}

// Start starts a process in a cgroup below Root, which it creates.
func (tree *Tree) Start(cgroup string, cmd *exec.Cmd) *exec.Cmd {
	tree.t.Helper()
	path := filepath.Join(tree.Root, cgroup)
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // the kernel's own mode
		tree.t.Fatal(err)
	}
	directory, err := os.Open(path) //nolint:gosec // a path of a test
	if err != nil {
		tree.t.Fatal(err)
	}
	defer func() { _ = directory.Close() }()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(directory.Fd())}
	if err := cmd.Start(); err != nil {
		tree.t.Fatal(err)
	}
	tree.processes[cgroup] = append(tree.processes[cgroup], cmd)
	return cmd
}

// Stop kills the processes of a cgroup below Root, and removes it with all below it.
func (tree *Tree) Stop(cgroup string) {
	path := filepath.Join(tree.Root, cgroup)
	_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	for name, cmds := range tree.processes {
		if cgroup == "" || name == cgroup || strings.HasPrefix(name, cgroup+"/") {
			for _, cmd := range cmds {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			delete(tree.processes, name)
		}
	}
	var all []string
	_ = filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, p)
		}
		return nil
	})
	for _, path := range slices.Backward(all) {
		for try := 0; errors.Is(unix.Rmdir(path), unix.EBUSY) && try < 1000; try++ {
			time.Sleep(time.Millisecond) //nolint:forbidigo // until the last process has left
		}
	}
}

// Remove removes the Tree. It is an error if something of it is left.
func (tree *Tree) Remove() {
	tree.Stop("")
	if _, err := os.Stat(tree.Root); !errors.Is(err, os.ErrNotExist) {
		tree.t.Errorf("%s is left", tree.Root)
	}
}

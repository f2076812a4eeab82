// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnreadableCgroups has a cgroup that the agent cannot list, beside its own. A user may remove the rights of root,
// which has no capability here, on a cgroup that systemd has delegated. An administrator may mount cgroup v1 on one:
// "mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd" is a known way to run old containers.
func TestUnreadableCgroups(t *testing.T) {
	if root := os.Getenv("UNREADABLE_ROOT"); root != "" {
		pid, _ := strconv.Atoi(os.Getenv("UNREADABLE_PID"))
		dir, err := os.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		tree := &cgroupTree{root: dir, pid: pid}
		if err := tree.locate(); err != nil {
			t.Fatal(err)
		}
		tree.close()
		return
	}
	for name, hide := range map[string]func(path string) error{
		"Rights": func(path string) error {
			if err := os.Chown(path, 1000, 1000); err != nil {
				return err
			}
			return os.Chmod(path, 0o700)
		},
		"Mount": func(path string) error {
			t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
			return unix.Mount("none", path, "tmpfs", 0, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "kubepods", "burstable/podown")
			path := filepath.Join(h.Root, "user.slice/user-1000.slice")
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := hide(path); err != nil {
				t.Skip(err)
			}
			defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
			// The agent is user 0 and has no capability that helps here.
			cmd := exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", os.Args[0], "-test.run=^TestUnreadableCgroups$", "-test.v")
			cmd.Env = append(os.Environ(), "UNREADABLE_ROOT="+h.Root, "UNREADABLE_PID="+strconv.Itoa(h.agent.Process.Pid))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("the tree cannot be used: %v\n%s", err, out)
			}
		})
	}
}

// TestWalkIsBoundedInMemory walks a directory with many directories. The limit of an agent's memory is 48 MiB, and the
// kernel has no limit of cgroups: a pod with its own cgroup namespace may create as many as it likes.
func TestWalkIsBoundedInMemory(t *testing.T) {
	root := t.TempDir()
	const names = 2_000
	for i := range names {
		if err := os.Mkdir(filepath.Join(root, fmt.Sprintf("cri-containerd-%064d.scope", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = walk(dir, "", 10, func(string) bool { return true })
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc
	if !errors.Is(err, errTooMany) {
		t.Errorf("walk() = %v, want %v", err, errTooMany)
	}
	if used > 256<<10 {
		t.Errorf("a walk over 10 directories allocated %d KiB", used>>10)
	}
}

// TestWalkIsBoundedInDepth walks a directory in which directories are nested deeper than maxDepth.
func TestWalkIsBoundedInDepth(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, strings.Repeat("c/", maxDepth+2)), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	visited := 0
	err = walk(dir, "", 1_000, func(string) bool { visited++; return true })
	if want := maxDepth + 1; visited != want || err != nil {
		t.Errorf("visited %d directories, want %d: %v", visited, want, err)
	}
}

// TestOldKernel covers a kernel without openat2(2), which is from Linux 5.6.
func TestOldKernel(t *testing.T) {
	if err := classify("kubepods", unix.ENOSYS); !errors.Is(err, errOldKernel) {
		t.Errorf("classify(ENOSYS) = %v, want %v", err, errOldKernel)
	}
}

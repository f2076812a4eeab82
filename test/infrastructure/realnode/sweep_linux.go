// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A warden has its directory locked, and the kernel takes the lock back when it ends,
// however it ends. So what is not locked was left behind by one that was killed.

// lockedFD is the file descriptor by which a warden inherits its lock.
const lockedFD = 3

// lock locks the directory of a node. It fails when another has it.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir) //nolint:gosec // our own directory
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// sweep removes what nodes left whose warden was killed, of this plane or of any other.
func sweep() error {
	files, err := filepath.Glob(filepath.Join(os.TempDir(), dirPattern, specFile))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		if dir := filepath.Dir(f); isOurs(dir) {
			errs = append(errs, removeAbandoned(dir))
		}
	}
	return errors.Join(errs...)
}

// isOurs reports whether nobody else can have made a directory: everybody may write
// where they are.
func isOurs(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// removeAbandoned removes a node unless it has a warden.
func removeAbandoned(dir string) error {
	held, err := lock(dir)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	mounts, err := readCgroupMounts()
	if err != nil {
		return err
	}
	groups := mounts.groups(dir)
	for try := 0; try < killTries && killAbandoned(dir, groups); try++ {
		<-time.NewTimer(killPause).C
	}
	return remove(dir, groups)
}

// killAbandoned kills what is left of a node, and reports whether there was anything.
// Kubelet and runtime ended with their warden; shims and containers do not.
func killAbandoned(dir string, groups []string) bool {
	pids := shims(dir)
	for _, g := range groups {
		pids = append(pids, members(g)...)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(pids) > 0
}

// shims are the processes of the runtime of a node, by an argument that all have.
func shims(dir string) []int {
	var pids []int
	socket := filepath.Join(dir, containerdSocket)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.Split(string(line), "\x00")
		if err == nil && filepath.Base(args[0]) == "containerd-shim-runc-v2" && slices.Contains(args, socket) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// members are the processes in a control group and in those below.
func members(group string) []int {
	var pids []int
	_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it is gone
		}
		text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")) //nolint:gosec // a file of the kernel
		for f := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 { // 0 is one of another PID namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// remove removes the control groups and the directory of a node that has no processes. The
// directory stays, for the next sweep to find, while a group does; and while anything is
// mounted below it, which may be somebody's files.
func remove(dir string, groups []string) error {
	var errs []error
	for _, g := range groups {
		errs = append(errs, removeGroup(g))
	}
	mounts, err := mountsBelow(dir)
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is not removed: %s is mounted there", dir, strings.Join(mounts, ", "))
	}
	return os.RemoveAll(dir)
}

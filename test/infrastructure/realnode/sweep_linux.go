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

// A warden locks its directory, and the kernel releases the lock when the warden ends, in whatever way. An unlocked
// directory thus belongs to a killed warden.

// lockedFD is the file descriptor by which a warden inherits its lock.
const lockedFD = 3

// lock locks the directory of a node. It returns an error if another process has locked it.
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

// sweep removes the remains of nodes whose warden was killed, of every plane.
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

// isOurs reports whether this user created a directory: its parent is writable for all users.
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

// killAbandoned kills the remaining processes of a node, and reports whether there were any. Kubelet and runtime ended
// with their warden; shims and containers did not.
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

// shims returns the shim processes of a node's runtime, which all have the socket as an argument.
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

// members returns the processes in a control group and its descendants.
func members(group string) []int {
	var pids []int
	_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it is gone
		}
		text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")) //nolint:gosec // a file of the kernel
		for f := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 { // 0 is a process of another PID namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// remove removes the control groups and the directory of a node without processes. It keeps the directory, for the next
// sweep, while a group exists. It also keeps it while anything is mounted below it, because that may be another user's
// files.
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

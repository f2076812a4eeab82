// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// Processes die of SIGKILL in their own time, but not for longer than 20 s.
const (
	killTries = 1000
	killPause = 20 * time.Millisecond
)

// mounts makes room for files whose place cannot be chosen. The namespace is the
// warden's own, so nobody else sees them, and they go with it.
func (s Spec) mounts() error {
	// Pods may ask for mount propagation, which needs a shared parent.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/run/containerd", "/var/log/containers"} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as their owners make them
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	return nil
}

// hierarchies are the roots of all control group hierarchies: one in version 2,
// one per controller in version 1.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(cgroupMount, e.Name()))
		}
	}
	return out
}

func (s Spec) makeCgroups() error {
	for _, h := range hierarchies() {
		for _, dir := range []string{h, filepath.Join(h, s.Cgroup)} {
			if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as everybody's
				return err
			}
			// Version 2 only. A controller that is not there is not delegated.
			for _, c := range []string{"+cpu", "+memory", "+pids", "+cpuset", "+io"} {
				_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(c), 0)
			}
		}
	}
	return nil
}

// cleanUp ends every process below the warden and removes what they left.
func (s Spec) cleanUp() error {
	for try := 0; try < killTries && killDescendants(os.Getpid()); try++ {
		<-time.NewTimer(killPause).C
	}
	var errs []error
	for _, m := range slices.Backward(mountsBelow(s.Dir)) {
		errs = append(errs, unix.Unmount(m, unix.MNT_DETACH))
	}
	for _, h := range hierarchies() {
		errs = append(errs, removeCgroups(filepath.Join(h, s.Cgroup)))
	}
	return errors.Join(append(errs, os.RemoveAll(s.Dir))...)
}

// killDescendants kills everything that has pid among its ancestors and reaps
// what it can. It reports whether there was anything.
func killDescendants(pid int) bool {
	below := Below(pid)
	for _, p := range below {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	for {
		if p, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); p <= 0 || err != nil {
			return len(below) > 0
		}
	}
}

// mountsBelow lists mount points below dir in the order in which they were made.
func mountsBelow(dir string) []string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var out []string
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if fields := strings.Fields(scan.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			out = append(out, fields[4])
		}
	}
	return out
}

// removeCgroups removes a control group and those in it, children first: they
// are directories that hold files nobody can remove.
func removeCgroups(dir string) error {
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

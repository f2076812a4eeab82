// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bufio"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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

// cleanUp ends every process below the warden and removes what they left.
func (s Spec) cleanUp(groups []string) error {
	for try := 0; try < killTries && killDescendants(os.Getpid()); try++ {
		<-time.NewTimer(killPause).C
	}
	var errs []error
	for _, m := range slices.Backward(mountsBelow(s.Dir)) {
		errs = append(errs, unix.Unmount(m, unix.MNT_DETACH))
	}
	return errors.Join(append(errs, remove(s.Dir, groups))...)
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

// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	for _, dir := range []string{"/run/containerd", "/var/log/containers", "/var/lib/cni"} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as their owners make them
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	return s.shadowSettings()
}

// kernelSettings are what a kubelet sets for the whole machine, below /proc/sys. A machine
// that panics at the next oops is not what its owner asked for.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// shadowSettings lets the kubelet set copies of them, which only the node sees.
func (s Spec) shadowSettings() error {
	for _, name := range kernelSettings {
		setting := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(setting) //nolint:gosec // a file of the kernel
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		shadow := s.path(strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(shadow, value, 0o600); err != nil { //nolint:gosec // in our own directory
			return err
		}
		if err := unix.Mount(shadow, setting, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("shadowing %s: %w", setting, err)
		}
	}
	return nil
}

// cleanUp ends every process below the warden and removes what they left.
func (s Spec) cleanUp(groups []string) error {
	for try := 0; try < killTries && killDescendants(os.Getpid()); try++ {
		<-time.NewTimer(killPause).C
	}
	mounts, err := mountsBelow(s.Dir)
	errs := []error{err}
	for _, m := range slices.Backward(mounts) {
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
func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var below []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if path := unescape.Replace(fields[4]); strings.HasPrefix(path, dir+"/") {
			below = append(below, path)
		}
	}
	return below, nil
}

// unescape reads a path as the kernel writes it in tables of mounts: proc(5).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

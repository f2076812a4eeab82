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

// Processes may need time to end after SIGKILL. The wait is bounded by 20 s.
const (
	killTries = 1000
	killPause = 20 * time.Millisecond
)

// mounts provides room for files with a fixed path. The mount namespace is the warden's own, so other processes do not
// see them, and they vanish with it.
func (s Spec) mounts() error {
	// Pods may request mount propagation, which needs a shared parent.
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

// kernelSettings are the settings below /proc/sys that a kubelet changes for the whole machine. They include a panic at
// the next oops, which the machine's owner does not want.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// shadowSettings gives the kubelet copies of them, which only the node sees.
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

// cleanUp ends all descendants of the warden and removes their remains.
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

// killDescendants kills all descendants of pid, and reaps its own children among them. It reports whether there were
// any.
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

// mountsBelow lists mount points below dir in the order of their creation.
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

// unescape decodes a path in the kernel's tables of mounts: proc(5).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// devices are the paths of the devices that a frozen pod would go on using, or their beginnings: GPUs of NVIDIA, GPUs
// of the kernel's graphics drivers, and the compute interface of AMD.
var devices = []string{"/dev/nvidia", "/dev/dri/", "/dev/kfd"}

// ownership is whether the processes of a pod have a device open or mapped.
type ownership int

const (
	noDevice ownership = iota
	// unknownDevice means that the agent may not read what a process has open: that needs the process's user and all
	// of its capabilities, or CAP_SYS_PTRACE. See ptrace(2).
	unknownDevice
	holdsDevice
)

// openDevices returns whether one of the processes has a device open. See proc_pid_fd(5).
func openDevices(procRoot string, pids []int, devices []string) ownership {
	return firstHolder(pids, func(pid int) ownership {
		directory := filepath.Join(procRoot, strconv.Itoa(pid), "fd")
		open, err := os.Open(directory) //nolint:gosec // a process of a pod
		if err != nil {
			return unread(err)
		}
		defer func() { _ = open.Close() }()
		found := noDevice
		for { // A process may have a million open files.
			files, err := open.ReadDir(256)
			for _, f := range files {
				target, err := os.Readlink(filepath.Join(directory, f.Name()))
				switch {
				case err != nil:
					found = max(found, unread(err))
				case isDevice(target, devices):
					return holdsDevice
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				return found
			case err != nil:
				return max(found, unread(err))
			}
		}
	})
}

// mappedDevices returns whether one of the processes has a device mapped. The read may block for as long as the process
// changes its mappings.
func mappedDevices(procRoot string, pids []int, devices []string) ownership {
	return firstHolder(pids, func(pid int) ownership {
		maps, err := os.Open(filepath.Join(procRoot, strconv.Itoa(pid), "maps")) //nolint:gosec // a process of a pod
		if err != nil {
			return unread(err)
		}
		defer func() { _ = maps.Close() }()
		lines := bufio.NewScanner(maps) // A process may have megabytes of mappings. A line has at most one path.
		for lines.Scan() {
			// The path is the last column. Nothing before it has a slash.
			if i := bytes.IndexByte(lines.Bytes(), '/'); i >= 0 && isDevice(string(lines.Bytes()[i:]), devices) {
				return holdsDevice
			}
		}
		if err := lines.Err(); err != nil {
			return unread(err)
		}
		return noDevice
	})
}

// firstHolder returns the ownership of a pod with these processes.
func firstHolder(pids []int, of func(pid int) ownership) ownership {
	found := noDevice
	for _, pid := range pids {
		if found = max(found, of(pid)); found == holdsDevice {
			break
		}
	}
	return found
}

// unread returns the ownership of a process that cannot be read: none if it has ended.
func unread(err error) ownership {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return noDevice
	}
	return unknownDevice
}

func isDevice(path string, devices []string) bool {
	return slices.ContainsFunc(devices, func(d string) bool { return strings.HasPrefix(path, d) })
}

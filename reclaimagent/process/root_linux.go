// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Open returns the processes below path, usually /proc. The calling process is the one that path/self names. So a proc
// file system of another PID namespace works as well.
func Open(path string) (*Table, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening proc root: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	var self int32
	if link, err := os.Readlink(filepath.Join(path, "self")); err == nil {
		self, _ = parsePID([]byte(link))
	}
	t := newTable(&dirRoot{fd: fd, entries: make([]byte, 32<<10)}, self)
	if int(self) == os.Getpid() { // otherwise, the PIDs belong to another namespace
		t.alive = func(pid int32) bool { return !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) }
	}
	return t, nil
}

// dirRoot reads below an open directory by system calls alone, without an
// allocation per process: on a busy machine it is called thousands of times a
// second. Calls that never block are raw system calls. Go's monitor thread wakes for each call that the runtime knows
// of and checks after 20 us whether it blocks. Wake-ups for each process that starts, with the runtime and raw: 0.39 to
// 0.45 and 0.24; beside a compiler 5.4 to 5.8 and 1.0 (make bench BENCH='--only agent --goals G5', goal 0.3). A call
// that may block goes through the runtime: otherwise the next garbage collection stops the process until it returns
// (ADR 0019).
type dirRoot struct {
	fd      int
	entries []byte
	path    [32]byte
}

func (r *dirRoot) pids(dst []int32) ([]int32, error) {
	if _, err := unix.Seek(r.fd, 0, unix.SEEK_SET); err != nil {
		return dst, fmt.Errorf("listing processes: %w", err)
	}
	return r.list(dst, r.fd)
}

func (r *dirRoot) threads(dst []int32, pid int32) ([]int32, error) {
	h, err := r.open(pid, "task")
	if err != nil {
		return dst, err
	}
	defer r.shut(h)
	return r.list(dst, h.fd)
}

func (r *dirRoot) list(dst []int32, fd int) ([]int32, error) {
	for {
		n, err := unix.ReadDirent(fd, r.entries)
		if err != nil {
			return dst, fmt.Errorf("listing processes: %w", err)
		}
		if n <= 0 {
			break
		}
		dst = appendPIDs(dst, r.entries[:n])
	}
	// The kernel lists in ascending order; other file systems may not.
	if !slices.IsSorted(dst) {
		slices.Sort(dst)
	}
	return dst, nil
}

// Offsets in struct linux_dirent64, <linux/dirent.h>: inode, offset, record length, type, name.
const (
	direntLength = 16
	direntName   = 19
)

// appendPIDs appends the PIDs in a buffer of directory entries.
func appendPIDs(dst []int32, buf []byte) []int32 {
	for len(buf) > direntName {
		length := int(binary.NativeEndian.Uint16(buf[direntLength:]))
		if length <= direntName || length > len(buf) {
			return dst
		}
		name := buf[direntName:length]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		if pid, ok := parsePID(name); ok {
			dst = append(dst, pid)
		}
		buf = buf[length:]
	}
	return dst
}

// open calls openat(2) with a path that is built in place. The wrapper in x/sys/unix would allocate the path each time.
func (r *dirRoot) open(pid int32, name string) (handle, error) {
	path := append(strconv.AppendInt(r.path[:0], int64(pid), 10), '/')
	path = append(append(path, name...), 0)
	for {
		fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(r.fd), uintptr(unsafe.Pointer(unsafe.SliceData(path))), //nolint:gosec // path ends in a NUL and outlives the call
			unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return handle{}, errno
		}
		return handle{fd: int(fd)}, nil
	}
}

func (*dirRoot) read(h handle, buf []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(h.fd, buf, off)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (*dirRoot) peek(h handle, buf []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(h.fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), 0, 0, 0) //nolint:gosec // pread(2) fills buf
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func (*dirRoot) shut(h handle) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(h.fd), 0, 0) }

// hiding finds the mount by its device, because in a pod the path belongs to a bind mount.
func (r *dirRoot) hiding() string {
	var st unix.Stat_t
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err = errors.Join(err, unix.Fstat(r.fd, &st)); err != nil {
		return "mount options are unknown: " + err.Error()
	}
	return hidingOptions(string(mounts), fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
}

// hidingOptions returns the options hidepid and gid of a device in a mountinfo file. See proc(5).
func hidingOptions(mounts, device string) string {
	for line := range strings.Lines(mounts) {
		mount, super, _ := strings.Cut(line, " - ")
		m, s := strings.Fields(mount), strings.Fields(super)
		if len(m) < 3 || m[2] != device || len(s) < 3 || !strings.Contains(s[2], "hidepid=") {
			continue
		}
		return strings.Join(slices.DeleteFunc(strings.Split(s[2], ","), func(option string) bool {
			return !strings.HasPrefix(option, "hidepid=") && !strings.HasPrefix(option, "gid=")
		}), ",")
	}
	return ""
}

func (r *dirRoot) close() error { return unix.Close(r.fd) }

// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
)

// fsRoot is a root on any file system with the layout of /proc.
type fsRoot struct{ fsys fs.FS }

func (r fsRoot) pids(dst []int32) ([]int32, error) {
	return r.list(dst, ".")
}

func (r fsRoot) threads(dst []int32, pid int32) ([]int32, error) {
	return r.list(dst, strconv.Itoa(int(pid))+"/task")
}

func (r fsRoot) list(dst []int32, dir string) ([]int32, error) {
	entries, err := fs.ReadDir(r.fsys, dir)
	if err != nil {
		return dst, fmt.Errorf("listing processes: %w", err)
	}
	for _, e := range entries {
		if pid, ok := parsePID([]byte(e.Name())); ok {
			dst = append(dst, pid)
		}
	}
	slices.Sort(dst)
	return dst, nil
}

func (r fsRoot) open(pid int32, name string) (handle, error) {
	f, err := r.fsys.Open(strconv.Itoa(int(pid)) + "/" + name)
	return handle{fd: -1, file: f}, err
}

// read reads sequentially if the file does not support offsets. Every file is read once from its start, so the result
// is the same.
func (fsRoot) read(h handle, buf []byte, off int64) (int, error) {
	var n int
	var err error
	if at, ok := h.file.(io.ReaderAt); ok {
		n, err = at.ReadAt(buf, off)
	} else {
		n, err = io.ReadFull(h.file, buf)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

func (r fsRoot) peek(h handle, buf []byte) (int, error) { return r.read(h, buf, 0) }

func (fsRoot) shut(h handle) { _ = h.file.Close() }

func (fsRoot) hiding() string { return "" }

func (fsRoot) close() error { return nil }

// parsePID parses a directory name. It accepts only the kernel's format: no sign, no leading zero, at most 7 digits,
// the length of PID_MAX_LIMIT (1<<22).
func parsePID(name []byte) (int32, bool) {
	if len(name) == 0 || len(name) > 7 || name[0] == '0' {
		return 0, false
	}
	var pid int32
	for _, c := range name {
		if c < '0' || c > '9' {
			return 0, false
		}
		pid = pid*10 + int32(c-'0')
	}
	return pid, true
}

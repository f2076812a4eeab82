// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"fmt"
	"os"
	pathpkg "path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxDepth bounds the depth of a walk: a pod with its own cgroup namespace may create cgroups without end.
const maxDepth = 32

var errTooMany = errors.New("there are too many cgroups")

// openBelow opens a path below a directory. An empty path is the directory itself.
func openBelow(directory int, path string, flags uint64) (int, error) {
	if path == "" {
		path = "."
	}
	for {
		fd, err := unix.Openat2(directory, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: beneath})
		if !errors.Is(err, unix.EINTR) {
			return fd, classify(path, err)
		}
	}
}

// classify wraps the errors about a removed cgroup.
func classify(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		err = errPodGone
	case errors.Is(err, unix.ENOSYS):
		err = errOldKernel
	}
	return &os.PathError{Op: "cgroup", Path: path, Err: err}
}

// readBelow reads a file of the kernel, which has no size.
func readBelow(directory int, path string) ([]byte, error) {
	fd, err := openBelow(directory, path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	for text := make([]byte, 0, 128); ; {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, classify(path, err)
		case n == 0:
			return text, nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = slices.Grow(text, len(text))
		}
	}
}

func writeBelow(directory int, path, text string) error {
	fd, err := openBelow(directory, path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		_, err := unix.Write(fd, []byte(text))
		if !errors.Is(err, unix.EINTR) {
			return classify(path, err)
		}
	}
}

// directories returns the names of the directories in a directory.
func directories(directory int, path string) ([]string, error) {
	fd, err := openBelow(directory, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, classify(path, err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// walk visits a directory and all directories below it, upper ones first, until visit returns false. It ignores
// directories that disappear or that lie deeper than maxDepth. It returns errTooMany after a number of directories.
func walk(directory int, path string, most int, visit func(path string) bool) error {
	type level struct {
		path  string
		depth int
	}
	queue := []level{{path, 0}}
	for visited := 0; len(queue) > 0; visited++ {
		if visited == most {
			return errTooMany
		}
		next := queue[0]
		queue = queue[1:]
		if !visit(next.path) {
			return nil
		}
		names, err := directories(directory, next.path)
		if err != nil && !errors.Is(err, errPodGone) {
			return fmt.Errorf("listing cgroups: %w", err)
		}
		if next.depth == maxDepth {
			continue
		}
		for _, name := range names {
			queue = append(queue, level{pathpkg.Join(next.path, name), next.depth + 1})
		}
	}
	return nil
}

// processesIn returns the processes of a cgroup without the ones below it. A threaded cgroup has no list.
func processesIn(directory int, path string) []int {
	raw, err := readBelow(directory, pathpkg.Join(path, "cgroup.procs"))
	if err != nil {
		return nil
	}
	return parsePIDs(string(raw))
}

func hasProcess(directory int, path string, pid int) bool {
	return slices.Contains(processesIn(directory, path), pid)
}

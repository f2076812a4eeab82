// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"fmt"
	"io"
	"os"
	pathpkg "path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxDepth bounds the depth of a walk: a pod with its own cgroup namespace may create cgroups without end.
const maxDepth = 32

var errTooMany = errors.New("there are too many cgroups")

// openBelow opens a path below a directory. An empty path is the directory itself. It never follows a link, and never
// leaves the directory or the file system. See openat2(2).
func openBelow(directory *os.File, path string, flags uint64) (*os.File, error) {
	if path == "" {
		path = "."
	}
	const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	fd, err := unix.Openat2(int(directory.Fd()), path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return nil, classify(path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
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

// withBelow opens a path, and calls f with it.
func withBelow(directory *os.File, path string, flags uint64, f func(*os.File) error) error {
	opened, err := openBelow(directory, path, flags)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	return classify(path, f(opened))
}

func readBelow(directory *os.File, path string) (text string, err error) {
	err = withBelow(directory, path, unix.O_RDONLY, func(f *os.File) error {
		raw, err := io.ReadAll(f)
		text = string(raw)
		return err
	})
	return text, err
}

func writeBelow(directory *os.File, path, text string) error {
	return withBelow(directory, path, unix.O_WRONLY, func(f *os.File) error {
		_, err := f.WriteString(text)
		return err
	})
}

// directories returns the names of the directories in a directory, of at most that many, or all if most is -1.
func directories(directory *os.File, path string, most int) (names []string, err error) {
	err = withBelow(directory, path, unix.O_RDONLY|unix.O_DIRECTORY, func(f *os.File) error {
		var entries []os.DirEntry
		for err == nil && (most < 0 || len(names) < most) {
			entries, err = f.ReadDir(64)
			for _, e := range entries {
				if e.IsDir() {
					names = append(names, e.Name())
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return names, err
}

// walk visits a directory and all directories below it, upper ones first, until visit returns false. It ignores
// directories that disappear, that it may not list, below which something is mounted, or that lie deeper than maxDepth.
// It returns errTooMany after a number of directories.
func walk(directory *os.File, path string, most int, visit func(path string) bool) error {
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
		// One more than may be visited shows that there are too many, and bounds the memory.
		names, err := directories(directory, next.path, max(1, most-visited-len(queue)))
		if err != nil && !errors.Is(err, errPodGone) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EXDEV) {
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
func processesIn(directory *os.File, path string) []int {
	text, err := readBelow(directory, pathpkg.Join(path, "cgroup.procs"))
	if err != nil {
		return nil
	}
	return parsePIDs(text)
}

func hasProcess(directory *os.File, path string, pid int) bool {
	return slices.Contains(processesIn(directory, path), pid)
}

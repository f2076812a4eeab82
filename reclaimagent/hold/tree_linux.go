// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"fmt"
	"os"
	pathpkg "path"

	"golang.org/x/sys/unix"
)

// markName is the extended attribute that marks a pod. The kernel removes it with the cgroup.
const markName = "user.5spot.hold"

// maxCgroups and maxNested bound the cgroups of a host and of a pod that are read. A read takes about 20 microseconds.
const (
	maxCgroups = 100_000
	maxNested  = 2_000
)

// cgroupTree is the tree of the kubelet that runs the agent.
type cgroupTree struct {
	// root and kubepods are open directories. The names below kubepods have this layout.
	root, kubepods *os.File
	layout         layout
	pid            int
	// own is the pod of the agent. ownCgroup is the path of its cgroup below root.
	own, ownCgroup string
}

// openTree opens the tree of cgroup v2 at path. The agent must be in a pod there, because a tree without it is not the
// tree of its kubelet.
func openTree(path string) (tree, error) { return openTreeOf(path, os.Getpid()) }

func openTreeOf(path string, pid int) (tree, error) {
	root, err := os.Open(path) //nolint:gosec // an argument of the agent
	if err != nil {
		return nil, fmt.Errorf("opening the cgroup tree: %w", err)
	}
	t := &cgroupTree{root: root, pid: pid}
	if err = checkRoot(root); err == nil {
		err = t.locate()
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// checkRoot returns an error if a root is not a writable tree of cgroup v2. Version 1 cannot kill frozen processes.
func checkRoot(root *os.File) error {
	var fs unix.Statfs_t
	switch err := unix.Fstatfs(int(root.Fd()), &fs); {
	case err != nil:
		return fmt.Errorf("reading the file system of %s: %w", root.Name(), err)
	case fs.Type != unix.CGROUP2_SUPER_MAGIC:
		return fmt.Errorf("the host does not use cgroup v2: %s is another file system", root.Name())
	case fs.Flags&unix.ST_RDONLY != 0:
		return fmt.Errorf("the cgroup tree at %s is mounted read-only", root.Name())
	}
	return nil
}

// locate finds the pod of the agent, and opens the kubepods directory above it.
func (t *cgroupTree) locate() error {
	path, err := t.find()
	if err != nil {
		return err
	}
	kubepods, own, ok := podOf(path)
	if !ok {
		return fmt.Errorf("the agent runs in no pod of this cgroup tree, but in /%s", path)
	}
	opened, err := openBelow(t.root, kubepods, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("opening the cgroups of the pods: %w", err)
	}
	_ = t.kubepods.Close()
	t.kubepods, t.own, t.ownCgroup = opened, own, path
	t.layout, _ = layoutOf(pathpkg.Base(kubepods))
	return checkWritable(opened, own)
}

var errOldKernel = errors.New("the kernel is older than 5.14")

// checkWritable returns an error if the kernel cannot kill a cgroup, or if the agent may not write to one: for example,
// because of SELinux. It opens a file of the agent's own pod and writes nothing.
func checkWritable(kubepods *os.File, pod string) error {
	switch err := withBelow(kubepods, pathpkg.Join(pod, "cgroup.kill"), unix.O_WRONLY, func(*os.File) error { return nil }); {
	case errors.Is(err, errPodGone):
		return errOldKernel
	case err != nil:
		return fmt.Errorf("opening a cgroup for writing: %w", err)
	}
	return nil
}

// find returns the path of the agent's cgroup. The file /proc/self/cgroup does not contain it if the agent has its own
// cgroup namespace.
func (t *cgroupTree) find() (string, error) {
	var path string
	found := false
	err := walk(t.root, "", maxCgroups, func(p string) bool {
		path, found = p, hasProcess(t.root, p, t.pid)
		return !found
	})
	if err == nil && !found {
		err = errors.New("the agent is in no cgroup of this cgroup tree")
	}
	return path, err
}

// verify locates the agent again if something moved it.
func (t *cgroupTree) verify() error {
	if t.ownCgroup != "" && hasProcess(t.root, t.ownCgroup, t.pid) {
		return nil
	}
	return t.locate()
}

func (t *cgroupTree) pods() ([]string, error) {
	var pods []string
	for _, class := range append([]string{""}, t.layout.classes()...) {
		names, err := directories(t.kubepods, class, -1)
		if errors.Is(err, errPodGone) {
			continue // the kubelet creates the class with its first pod
		}
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		for _, name := range names {
			if pod := pathpkg.Join(class, name); t.layout.isPod(class, name) && !isStatic(name) && pod != t.own {
				pods = append(pods, pod)
			}
		}
	}
	return pods, nil
}

func (t *cgroupTree) state(pod string) (s podState, err error) {
	frozen, err := readBelow(t.kubepods, pathpkg.Join(pod, "cgroup.freeze"))
	if err != nil {
		return s, err
	}
	s.frozen = hasLine(frozen, "1")
	err = t.withDirectory(pod, func(fd int) error {
		_, err := unix.Fgetxattr(fd, markName, nil)
		if errors.Is(err, unix.ENODATA) {
			return nil
		}
		s.marked = err == nil
		return err
	})
	return s, err
}

func (t *cgroupTree) apply(pod string, c change) error {
	switch c {
	case setMark:
		return t.withDirectory(pod, func(fd int) error { return unix.Fsetxattr(fd, markName, []byte("1"), 0) })
	case clearMark:
		return t.withDirectory(pod, func(fd int) error { return unix.Fremovexattr(fd, markName) })
	case setFrozen:
		return writeBelow(t.kubepods, pathpkg.Join(pod, "cgroup.freeze"), "1")
	default:
		return writeBelow(t.kubepods, pathpkg.Join(pod, "cgroup.freeze"), "0")
	}
}

func (t *cgroupTree) kill(pod string) error {
	return writeBelow(t.kubepods, pathpkg.Join(pod, "cgroup.kill"), "1")
}

func (t *cgroupTree) events(pod string) (frozen, populated bool, err error) {
	text, err := readBelow(t.kubepods, pathpkg.Join(pod, "cgroup.events"))
	return hasLine(text, "frozen 1"), hasLine(text, "populated 1"), err
}

func (t *cgroupTree) processes(pod string) ([]int, error) {
	var all []int
	err := walk(t.kubepods, pod, maxNested, func(path string) bool {
		all = append(all, processesIn(t.kubepods, path)...)
		return true
	})
	return all, err
}

// withDirectory calls f with the open directory of a pod.
func (t *cgroupTree) withDirectory(pod string, f func(fd int) error) error {
	return withBelow(t.kubepods, pod, unix.O_RDONLY|unix.O_DIRECTORY, func(directory *os.File) error { return f(int(directory.Fd())) })
}

func (t *cgroupTree) close() {
	_ = t.root.Close()
	_ = t.kubepods.Close()
}

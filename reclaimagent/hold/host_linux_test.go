// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// host is a private tree of cgroup v2 with real processes. It stands for the tree of a host.
type host struct {
	t *testing.T
	// root is the path of the tree, kubepods the path of its pods below root.
	root, kubepods string
	// agent is the process that stands for the agent.
	agent *exec.Cmd
	// processes are all running processes, by cgroup.
	processes map[string][]*exec.Cmd
	// outside are the cgroups outside of kubepods.
	outside []string
}

// cgroup2 returns where cgroup v2 is mounted and writable. It skips the test if that is nowhere.
func cgroup2(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may create cgroups")
	}
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		t.Skip(err)
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) > 2 && f[2] == "cgroup2" && unix.Access(filepath.Join(f[1], "cgroup.procs"), unix.W_OK) == nil {
			return f[1]
		}
	}
	t.Skip("no writable cgroup v2 is mounted")
	return ""
}

var hosts int

// newHost creates a tree with the pod of the agent, own, below kubepods, and with two services of the host.
func newHost(t *testing.T, kubepods, own string) *host {
	t.Helper()
	hosts++
	h := &host{t: t, processes: map[string][]*exec.Cmd{}, outside: []string{"system.slice/kubelet.service", "user.slice/app.scope"}}
	h.root = filepath.Join(cgroup2(t), fmt.Sprintf("fivespot-hold-%d-%d", os.Getpid(), hosts))
	h.kubepods = kubepods
	t.Cleanup(h.removeAll)
	for _, service := range h.outside {
		h.run(service)
	}
	h.agent = h.run(filepath.Join(kubepods, own, "agent"))
	return h
}

// start starts a process in a cgroup below root, which it creates.
func (h *host) start(cgroup string, argv ...string) *exec.Cmd {
	h.t.Helper()
	path := filepath.Join(h.root, cgroup)
	if err := os.MkdirAll(path, 0o755); err != nil {
		h.t.Fatal(err)
	}
	directory, err := os.Open(path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer directory.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(directory.Fd())}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.processes[cgroup] = append(h.processes[cgroup], cmd)
	return cmd
}

func (h *host) run(cgroup string) *exec.Cmd {
	h.t.Helper()
	return h.start(cgroup, "/bin/sleep", "1000")
}

// spin starts a process that never waits.
func (h *host) spin(cgroup string) *exec.Cmd {
	h.t.Helper()
	return h.start(cgroup, "/bin/sh", "-c", "while :; do :; done")
}

// pod starts a process in a container of a pod.
func (h *host) pod(name string) {
	h.t.Helper()
	h.run(filepath.Join(h.kubepods, name, "container"))
}

func (h *host) path(pod, file string) string { return filepath.Join(h.root, h.kubepods, pod, file) }

func (h *host) read(path string) string {
	h.t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

func (h *host) write(path, text string) {
	h.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0); err != nil {
		h.t.Fatal(err)
	}
}

// frozen reports whether all processes of a cgroup below root freeze within 10 s.
func (h *host) frozen(cgroup string) bool {
	h.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		// A process that was just moved into a frozen cgroup freezes a moment later.
		if frozen := strings.Contains(h.read(filepath.Join(h.root, cgroup, "cgroup.events")), "frozen 1"); frozen || time.Now().After(deadline) {
			return frozen
		}
	}
}

func (h *host) podState(pod string) podState {
	h.t.Helper()
	_, err := unix.Lgetxattr(h.path(pod, ""), markName, nil)
	return podState{marked: err == nil, frozen: h.read(h.path(pod, "cgroup.freeze")) == "1"}
}

// open opens the tree as the process agent would.
func (h *host) open() (tree, error) {
	root, err := openRoot(h.root)
	if err != nil {
		return nil, err
	}
	t := &cgroupTree{root: root, kubepods: -1, pid: h.agent.Process.Pid}
	if err := t.locate(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// stop kills the processes of a cgroup below root, and removes it.
func (h *host) stop(cgroup string) {
	path := filepath.Join(h.root, cgroup)
	_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	for name, cmds := range h.processes {
		if name == cgroup || strings.HasPrefix(name, cgroup+"/") {
			for _, cmd := range cmds {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			delete(h.processes, name)
		}
	}
	removeCgroups(path)
}

// removeCgroups removes a cgroup and all below it.
func removeCgroups(path string) {
	var all []string
	_ = filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, p)
		}
		return nil
	})
	for _, path := range slices.Backward(all) {
		for try := 0; unix.Rmdir(path) == unix.EBUSY && try < 1000; try++ {
			time.Sleep(time.Millisecond) // until the last process has left
		}
	}
}

func (h *host) removeAll() {
	_ = os.WriteFile(filepath.Join(h.root, "cgroup.kill"), []byte("1"), 0)
	for _, cmds := range h.processes {
		for _, cmd := range cmds {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	removeCgroups(h.root)
	if _, err := os.Stat(h.root); !errors.Is(err, os.ErrNotExist) {
		h.t.Errorf("%s is left", h.root)
	}
}

// untouched returns an error if a cgroup that is not a pod, or the agent's own pod, was written.
func (h *host) untouched() error {
	pods := map[string]bool{}
	return filepath.WalkDir(h.root, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || !d.IsDir() || path == h.root {
			return nil
		}
		_, pod, isPod := podOf(strings.TrimPrefix(path, h.root+"/"))
		if isPod && filepath.Join(h.root, h.kubepods, pod) == path && !strings.Contains(h.read(filepath.Join(path, "cgroup.procs"))+h.below(path), "\n"+strconv.Itoa(h.agent.Process.Pid)+"\n") {
			pods[path] = true
			return nil
		}
		if raw, err := os.ReadFile(filepath.Join(path, "cgroup.freeze")); err == nil && strings.TrimSpace(string(raw)) != "0" {
			return fmt.Errorf("%s is frozen", path)
		}
		if _, err := unix.Lgetxattr(path, markName, nil); err == nil {
			return fmt.Errorf("%s has a mark", path)
		}
		return nil
	})
}

// below returns the processes of all cgroups directly below one, each between line breaks.
func (h *host) below(path string) string {
	text := "\n"
	files, _ := filepath.Glob(filepath.Join(path, "*", "cgroup.procs"))
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		text += string(raw)
	}
	return text
}

// ticks returns the CPU time that a process has used.
func (h *host) ticks(cmd *exec.Cmd) int {
	h.t.Helper()
	_, rest, _ := strings.Cut(h.read(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

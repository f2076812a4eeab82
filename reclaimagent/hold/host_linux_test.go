// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold/cgrouptest"
)

// host is a tree with the pods of a kubelet.
type host struct {
	*cgrouptest.Tree
	t *testing.T
	// kubepods is the path of the pods below Root.
	kubepods string
	// agent is the process that stands for the agent.
	agent *exec.Cmd
}

// newHost creates a tree with the pod of the agent, own, below kubepods, and with two services of the host.
func newHost(t *testing.T, kubepods, own string) *host {
	t.Helper()
	h := &host{Tree: cgrouptest.New(t), t: t, kubepods: kubepods}
	h.run("system.slice/kubelet.service")
	h.run("user.slice/app.scope")
	h.agent = h.run(filepath.Join(kubepods, own, "agent"))
	return h
}

func (h *host) run(cgroup string) *exec.Cmd {
	h.t.Helper()
	return h.Start(cgroup, exec.Command("/bin/sleep", "1000"))
}

// spin starts a process that never waits.
func (h *host) spin(cgroup string) *exec.Cmd {
	h.t.Helper()
	return h.Start(cgroup, exec.Command("/bin/sh", "-c", "while :; do :; done"))
}

// pod starts a process in a container of a pod.
func (h *host) pod(name string) *exec.Cmd {
	h.t.Helper()
	return h.run(filepath.Join(h.kubepods, name, "container"))
}

func (h *host) path(pod, file string) string { return filepath.Join(h.Root, h.kubepods, pod, file) }

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
		if frozen := strings.Contains(h.read(filepath.Join(h.Root, cgroup, "cgroup.events")), "frozen 1"); frozen || time.Now().After(deadline) {
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
func (h *host) open() (tree, error) { return openTreeOf(h.Root, h.agent.Process.Pid) }

// untouched returns an error if a cgroup that is not a pod, or the agent's own pod, was written.
func (h *host) untouched() error {
	return filepath.WalkDir(h.Root, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || !d.IsDir() || path == h.Root {
			return nil
		}
		_, pod, isPod := podOf(strings.TrimPrefix(path, h.Root+"/"))
		if isPod && filepath.Join(h.Root, h.kubepods, pod) == path && !strings.Contains(h.read(filepath.Join(path, "cgroup.procs"))+h.below(path), "\n"+strconv.Itoa(h.agent.Process.Pid)+"\n") {
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

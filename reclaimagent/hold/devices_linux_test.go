// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// standIn creates a character device. It skips the test if that is not allowed.
func standIn(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia0")
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil { // like /dev/null
		t.Skipf("creating a device: %v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("opening a device: %v", err)
	}
	_ = f.Close()
	return path
}

func TestOpenDevices(t *testing.T) {
	device := standIn(t)
	sleeper := exec.Command("/bin/sh", "-c", "exec 3<"+device+"; echo ready; exec /bin/sleep 1000")
	out, err := sleeper.StdoutPipe()
	if err != nil || sleeper.Start() != nil {
		t.Fatal("starting a process", err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	holder := sleeper.Process.Pid
	for name, tc := range map[string]struct {
		pids []int
		want ownership
	}{
		"Holder": {[]int{os.Getpid(), holder}, holdsDevice},
		"Other":  {[]int{os.Getpid()}, noDevice},
		"None":   {nil, noDevice},
		"Gone":   {[]int{1 << 30}, noDevice},
	} {
		if got := openDevices("/proc", tc.pids, []string{device}); got != tc.want {
			t.Errorf("%s: openDevices() = %d, want %d", name, got, tc.want)
		}
	}
	if got := openDevices("/proc", []int{holder}, devices); got != noDevice {
		t.Errorf("openDevices() = %d for a device that does not count", got)
	}
}

func TestMappedDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nvidia uvm") // a path may contain spaces
	if err := os.WriteFile(path, make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	self := []int{os.Getpid()}
	if got := mappedDevices("/proc", self, []string{path}); got != holdsDevice {
		t.Errorf("mappedDevices() = %d for a mapped device", got)
	}
	if got := openDevices("/proc", self, []string{path}); got != noDevice {
		t.Errorf("openDevices() = %d for a closed file", got)
	}
	if err := unix.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	if got := mappedDevices("/proc", self, []string{path}); got != noDevice {
		t.Errorf("mappedDevices() = %d after the mapping has ended", got)
	}
}

// TestUnreadableDevices checks a process of another user, as an agent without capabilities sees it.
func TestUnreadableDevices(t *testing.T) {
	proc := t.TempDir()
	for _, pid := range []string{"7", "8"} {
		if err := os.MkdirAll(filepath.Join(proc, pid, "fd"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A link that is a directory cannot be read, like the link of a process of another user.
	if err := os.Mkdir(filepath.Join(proc, "7/fd/3"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/dri/renderD128", filepath.Join(proc, "8/fd/3")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(proc, "7/maps"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := mappedDevices(proc, []int{7}, devices); got != unknownDevice {
		t.Errorf("mappedDevices() = %d for unreadable mappings", got)
	}
	if got := openDevices(proc, []int{7}, devices); got != unknownDevice {
		t.Errorf("openDevices() = %d for unreadable files", got)
	}
	if got := openDevices(proc, []int{7, 8}, devices); got != holdsDevice {
		t.Errorf("openDevices() = %d for one process with a device", got)
	}
}

// TestHostDevices checks that Freeze kills the pod that has a device open, and freezes the others.
func TestHostDevices(t *testing.T) {
	device := standIn(t)
	h := newHost(t, "kubepods", "podown")
	h.pod("pod1")
	h.Start("kubepods/pod2/container/nested", exec.Command("/bin/sh", "-c", "exec 3<"+device+"; exec /bin/sleep 1000"))
	time.Sleep(50 * time.Millisecond)
	saved := devices
	devices = []string{device}
	t.Cleanup(func() { devices = saved })
	a := newAgentProcess(h.open)
	a.o.ProcRoot, a.search = "/proc", searchDevices
	a.Observe(Node{Requested: true})
	a.Configure(withHold(reclaim.HoldFreeze))
	a.realSteps()
	time.Sleep(50 * time.Millisecond)
	a.realSteps()
	if events := h.read(h.path("pod2", "cgroup.events")); !strings.Contains(events, "populated 0") {
		t.Errorf("the pod with the device is alive: %q", events)
	}
	if events := h.read(h.path("pod1", "cgroup.events")); !strings.Contains(events, "populated 1") || !h.podState("pod1").frozen {
		t.Errorf("the pod without a device: %q", events)
	}
}

// TestRights checks that user 0 without capabilities may do all but search for devices, and another user nothing.
func TestRights(t *testing.T) {
	if os.Getenv("HOLD_ROOT") != "" {
		withoutRights(t)
		return
	}
	h := newHost(t, "kubepods", "podown")
	pod := h.pod("pod1")
	directory, err := os.Open(h.path("podown", "agent"))
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("setpriv is missing")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"0", "65534"} {
		cmd := exec.Command(setpriv, "--reuid="+user, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", self, "-test.run=^TestRights$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "HOLD_USER="+user, "HOLD_ROOT="+h.Root, "HOLD_PID="+strconv.Itoa(pod.Process.Pid))
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(directory.Fd())}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("user %s: %v\n%s", user, err, out)
		}
	}
}

func withoutRights(t *testing.T) {
	t.Helper()
	tree, err := openTree(os.Getenv("HOLD_ROOT"))
	if os.Getenv("HOLD_USER") != "0" {
		if err == nil || !strings.Contains(err.Error(), "opening a cgroup for writing") {
			t.Errorf("openTree() = %v for another user", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []change{setMark, setFrozen, clearFrozen, clearMark, setMark, setFrozen} {
		if err := tree.apply("pod1", c); err != nil {
			t.Errorf("change %d: %v", c, err)
		}
	}
	pid, _ := strconv.Atoi(os.Getenv("HOLD_PID"))
	if got := openDevices("/proc", []int{pid}, devices); got != unknownDevice {
		t.Errorf("openDevices() = %d without CAP_SYS_PTRACE", got)
	}
	if got := mappedDevices("/proc", []int{pid}, devices); got != unknownDevice {
		t.Errorf("mappedDevices() = %d without CAP_SYS_PTRACE", got)
	}
	if err := tree.kill("pod1"); err != nil {
		t.Error(err)
	}
}

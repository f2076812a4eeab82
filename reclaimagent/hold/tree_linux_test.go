// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold/cgrouptest"
)

// realSteps runs steps in real time until nothing is pending and two passes are over.
func (a *agentProcess) realSteps() {
	for passes := 0; passes < 2; {
		a.now = time.Now()
		next := a.step()
		if next == 0 {
			return
		}
		if next > measureInterval {
			passes++
			a.nextPass = time.Time{}
			continue
		}
		time.Sleep(next)
	}
}

var drivers = map[string]struct{ kubepods, own, guaranteed, burstable, bestEffort string }{
	"cgroupfs": {"kubepods", "burstable/podown", "pod1-a", "burstable/pod2-b", "besteffort/pod3-c"},
	"systemd": {
		"kubepods.slice", "kubepods-burstable.slice/kubepods-burstable-podown.slice", "kubepods-pod1_a.slice",
		"kubepods-burstable.slice/kubepods-burstable-pod2_b.slice", "kubepods-besteffort.slice/kubepods-besteffort-pod3_c.slice",
	},
	"kind cgroupfs": {"kubelet/kubepods", "podown", "pod1", "burstable/pod2", "besteffort/pod3"},
	"kind systemd": {
		"kubelet.slice/kubelet-kubepods.slice", "kubelet-kubepods-podown.slice", "kubelet-kubepods-pod1.slice",
		"kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod2.slice",
		"kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod3.slice",
	},
}

// TestHost checks one hold from the match to the release, with real processes.
func TestHost(t *testing.T) {
	for name, d := range drivers {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, d.kubepods, d.own)
			pods := []string{d.guaranteed, d.burstable, d.bestEffort}
			for _, pod := range pods {
				h.pod(pod)
			}
			spinner := h.spin(filepath.Join(d.kubepods, d.burstable, "nested/deep/er"))
			a := newAgentProcess(h.open)
			a.Observe(Node{})
			a.Configure(withHold(reclaim.HoldFreezeOnly))
			a.realSteps()
			a.update(func() { a.facts.matched, a.since = true, time.Now() })
			a.realSteps()
			for _, pod := range pods {
				if got := h.podState(pod); got != (podState{true, true}) || !h.frozen(filepath.Join(d.kubepods, pod)) {
					t.Errorf("pod %s is %+v after a match", pod, got)
				}
			}
			before := h.ticks(spinner)
			time.Sleep(50 * time.Millisecond)
			if after := h.ticks(spinner); after != before {
				t.Errorf("a frozen process used %d ticks", after-before)
			}
			if err := h.untouched(); err != nil {
				t.Error(err)
			}
			a.Requested()
			a.realSteps()
			s, ok := reclaim.ParseHoldState(a.reports[len(a.reports)-1])
			if !ok || s.Pods != 3 || s.CPU <= 0 || s.Killed != 0 {
				t.Errorf("reported %v", a.reports)
			}
			a.Observe(Node{})
			a.realSteps()
			for _, pod := range pods {
				if got := h.podState(pod); got != (podState{}) {
					t.Errorf("pod %s is %+v after the release", pod, got)
				}
			}
			if err := h.untouched(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostKill checks that a kill empties the frozen pods, and only them.
func TestHostKill(t *testing.T) {
	d := drivers["systemd"]
	h := newHost(t, d.kubepods, d.own)
	h.pod(d.guaranteed)
	h.spin(filepath.Join(d.kubepods, d.burstable, "a/b"))
	h.pod(d.bestEffort)
	h.write(h.path(d.bestEffort, "cgroup.freeze"), "1") // by something else
	a := newAgentProcess(h.open)
	a.Observe(Node{})
	a.Configure(withHold(reclaim.HoldKill))
	a.update(func() { a.facts.matched, a.since = true, time.Now() })
	a.realSteps()
	if events := h.read(h.path(d.burstable, "cgroup.events")); !strings.Contains(events, "populated 1") {
		t.Fatal("a pod was killed before the request was on the Node")
	}
	a.Requested()
	a.realSteps()
	for pod, want := range map[string]string{d.guaranteed: "populated 0", d.burstable: "populated 0", d.bestEffort: "populated 1", d.own: "populated 1"} {
		if events := h.read(h.path(pod, "cgroup.events")); !strings.Contains(events, want) {
			t.Errorf("pod %s: %q, want %s", pod, events, want)
		}
	}
	s, ok := reclaim.ParseHoldState(a.reports[len(a.reports)-1])
	if !ok || s.Killed != 2 || s.Memory <= 0 || s.Pods != 2 {
		t.Errorf("reported %v", a.reports)
	}
	if err := h.untouched(); err != nil {
		t.Error(err)
	}
	a.Observe(Node{})
	a.realSteps()
	if got := h.podState(d.bestEffort); got != (podState{frozen: true}) {
		t.Errorf("a pod that something else froze is %+v", got)
	}
}

// TestNewPods checks pods and processes that appear while a hold stands.
func TestNewPods(t *testing.T) {
	h := newHost(t, "kubepods", "podown")
	h.pod("pod1")
	a := newAgentProcess(h.open)
	a.Observe(Node{Requested: true})
	a.Configure(withHold(reclaim.HoldFreezeOnly))
	a.realSteps()
	h.pod("burstable/pod2")
	// A restarted container of a frozen pod starts frozen. Its parent cannot wait for its program to start.
	late := h.run("elsewhere")
	h.write(h.path("pod1", "container/cgroup.procs"), fmt.Sprint(late.Process.Pid))
	a.realSteps()
	for _, pod := range []string{"pod1", "burstable/pod2"} {
		if !h.podState(pod).marked || !h.frozen(filepath.Join("kubepods", pod)) {
			t.Errorf("pod %s is not held", pod)
		}
	}
	// A frozen process cannot leave. Something else moves it into the agent's pod, and from there nothing is frozen.
	h.write(h.path("podown", "agent/cgroup.procs"), fmt.Sprint(late.Process.Pid))
	a.realSteps()
	if err := h.untouched(); err != nil {
		t.Error(err)
	}
}

// TestMovedAgent checks that a pod which takes the agent in is not frozen: its cgroup is the agent's own then.
func TestMovedAgent(t *testing.T) {
	h := newHost(t, "kubepods", "podown")
	h.pod("pod1")
	h.pod("pod2")
	a := newAgentProcess(h.open)
	a.Observe(Node{})
	a.Configure(withHold(reclaim.HoldFreezeOnly))
	a.realSteps()
	h.write(h.path("pod1", "container/cgroup.procs"), fmt.Sprint(h.agent.Process.Pid))
	a.match()
	a.realSteps()
	if got := h.podState("pod1"); got != (podState{}) {
		t.Errorf("the pod with the agent is %+v", got)
	}
	if !h.podState("pod2").frozen {
		t.Error("another pod runs")
	}
	// Outside of all pods, the agent does not know which pod is its own.
	h.write(filepath.Join(h.Root, "system.slice/kubelet.service/cgroup.procs"), fmt.Sprint(h.agent.Process.Pid))
	h.pod("pod3")
	a.realSteps()
	if h.podState("pod3").frozen {
		t.Error("a pod was frozen although the agent's own is unknown")
	}
}

// TestHostileNames checks that only pods of the kubelet count, whatever names are beside them.
func TestHostileNames(t *testing.T) {
	h := newHost(t, "kubepods", "podown")
	h.pod("pod1")
	hostile := []string{
		"pod", "pod 1", "Pod1", "podx;rm", "pod\t1", "burstable-pod9", "kubepods/pod7", "guaranteed/pod8",
		"pod1/burstable/pod5", "pod1/kubepods/pod6", "kubepods-pod4.slice",
	}
	for _, name := range hostile {
		if err := os.MkdirAll(h.path(name, ""), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.run("user.slice/kubepods/pod1/x") // a user may choose that name
	tree, err := h.open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	pods, err := tree.pods()
	if err != nil || !slices.Equal(pods, []string{"pod1"}) {
		t.Errorf("pods() = %q, %v, want pod1", pods, err)
	}
	pids, err := tree.processes("pod1")
	if err != nil || len(pids) != 1 {
		t.Errorf("processes() = %v, %v", pids, err)
	}
}

// TestNestedCgroups checks that a pod which creates cgroups without end is read in part, and held.
func TestNestedCgroups(t *testing.T) {
	h := newHost(t, "kubepods", "podown")
	h.pod("pod1")
	for i := range maxNested {
		if err := os.MkdirAll(h.path("pod1", fmt.Sprintf("container/%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := h.open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	if pids, err := tree.processes("pod1"); !errors.Is(err, errTooMany) || len(pids) != 1 {
		t.Errorf("processes() = %v, %v, want one and %v", pids, err, errTooMany)
	}
	a := newAgentProcess(h.open)
	a.Observe(Node{Requested: true})
	a.Configure(withHold(reclaim.HoldFreeze))
	a.realSteps()
	if got := h.podState("pod1"); got != (podState{true, true}) {
		t.Errorf("the pod is %+v", got)
	}
}

// TestOtherTrees checks the reasons why a tree cannot be used.
func TestOtherTrees(t *testing.T) {
	root := cgrouptest.Mount(t)
	h := newHost(t, "kubepods", "podown")
	plain := t.TempDir()
	for name, tc := range map[string]struct{ path, want string }{
		"NotACgroup": {plain, "does not use cgroup v2"},
		"Missing":    {filepath.Join(plain, "none"), "opening the cgroup tree"},
		"NotAPod":    {root, "the agent runs in no pod"},
		"NotThere":   {h.Root, "the agent is in no cgroup of this cgroup tree"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := openTree(tc.path); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("openTree(%s) = %v, want %q", tc.path, err, tc.want)
			}
		})
	}
	t.Run("ReadOnly", func(t *testing.T) {
		mounted := t.TempDir()
		if err := unix.Mount(h.Root, mounted, "", unix.MS_BIND, ""); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
		if err := unix.Mount("", mounted, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Skip(err)
		}
		if _, err := openTree(mounted); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("openTree() = %v for a read-only mount", err)
		}
	})
}

// TestPathsStayBelowTheirDirectory checks that no lookup leaves its directory: neither by a link nor by a mount or by
// its name.
func TestPathsStayBelowTheirDirectory(t *testing.T) {
	outside, inside := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(outside, "pod1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{outside, filepath.Join(outside, "pod1")} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Symlink(outside, filepath.Join(inside, "pod1")),
		os.Mkdir(filepath.Join(inside, "pod2"), 0o755),
		os.Symlink(filepath.Join(outside, "cgroup.freeze"), filepath.Join(inside, "pod2/cgroup.freeze")),
	); err != nil {
		t.Fatal(err)
	}
	fd, err := os.Open(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	tree := &cgroupTree{root: fd, kubepods: fd}
	for _, pod := range []string{"pod1", "pod2", "../" + filepath.Base(outside), outside, "/proc/self/cwd"} {
		for _, c := range []change{setFrozen, clearFrozen} {
			if err := tree.apply(pod, c); err == nil {
				t.Errorf("a write to %s left its directory", pod)
			}
		}
		if err := tree.apply(pod, setMark); err == nil && pod != "pod2" {
			t.Errorf("a mark of %s left its directory", pod)
		}
	}
	if err := checkWritable(fd, "pod2"); !errors.Is(err, errOldKernel) {
		t.Errorf("checkWritable() = %v without cgroup.kill", err)
	}
	pods, err := tree.pods()
	if err != nil || slices.Contains(pods, "pod1") {
		t.Errorf("pods() = %v, %v: a link is no pod", pods, err)
	}
	for _, path := range []string{"cgroup.freeze", "pod1/cgroup.freeze"} {
		if raw, err := os.ReadFile(filepath.Join(outside, path)); err != nil || string(raw) != "0" {
			t.Errorf("%s outside is %q, %v", path, raw, err)
		}
	}
}

// TestManyPods checks that the first pass over 500 pods is short.
func TestManyPods(t *testing.T) {
	const pods = 500
	h := newHost(t, "kubepods", "podown")
	for i := range pods {
		if err := os.MkdirAll(h.path(fmt.Sprintf("burstable/pod%d", i), "container"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := newAgentProcess(h.open)
	a.Observe(Node{})
	a.Configure(withHold(reclaim.HoldFreezeOnly))
	a.realSteps()
	start := time.Now()
	a.update(func() { a.facts.matched, a.since, a.passed = true, start, make(chan struct{}) })
	a.step()
	took := time.Since(start)
	t.Logf("the first pass over %d pods took %s", pods, took)
	if got := a.counts.HeldPods.Load(); got != pods {
		t.Errorf("%d pods are held, want %d", got, pods)
	}
	if took > 2*time.Second { // a loaded machine; tens of milliseconds on a quiet one
		t.Errorf("the first pass took %s", took)
	}
}

// TestRun checks the holder with its own goroutine and clock.
func TestRun(t *testing.T) {
	h := newHost(t, "kubepods", "podown")
	h.pod("pod1")
	a := newAgentProcess(h.open)
	a.o.Now = time.Now
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { a.Run(ctx); close(ended) }()
	a.Observe(Node{})
	a.Configure(withHold(reclaim.HoldFreezeOnly))
	a.Matched(ctx, time.Now())
	if !h.frozen("kubepods/pod1") {
		t.Fatal("the pod is not frozen")
	}
	cancel()
	<-ended
	if got := h.podState("pod1"); got != (podState{}) {
		t.Errorf("the pod is %+v after SIGTERM without a request", got)
	}
}

type realWorld struct{ *host }

func (w realWorld) tree() (tree, error)       { return w.open() }
func (w realWorld) add(pod string)            { w.pod(pod) }
func (w realWorld) remove(pod string)         { w.Stop(filepath.Join(w.kubepods, pod)) }
func (w realWorld) state(pod string) podState { return w.podState(pod) }

func (w realWorld) freeze(pod string, on bool) {
	w.write(w.path(pod, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on])
}

// TestRandomOrdersOnHost is TestRandomOrders with real cgroups and processes.
func TestRandomOrdersOnHost(t *testing.T) {
	cgrouptest.Mount(t)
	rapid.Check(t, func(rt *rapid.T) {
		if t.Failed() {
			return
		}
		h := newHost(t, "kubepods", "podown")
		defer h.Remove()
		play(rt, realWorld{h}, h.untouched, 15)
	})
}

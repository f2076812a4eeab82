// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
)

// TestHolder checks writes and reports of one agent process. All pods but pod2 hold no device.
func TestHolder(t *testing.T) {
	freeze := []string{"mark pod1", "freeze pod1", "mark pod2", "freeze pod2"}
	release := []string{"unfreeze pod1", "unmark pod1", "unfreeze pod2", "unmark pod2"}
	and := slices.Concat[[]string]
	text := func(s reclaim.HoldState) string { return s.Text() }
	cases := map[string]struct {
		reason  string
		hold    reclaim.Hold
		host    func(h *fakeHost)
		node    Node
		story   func(a *agentProcess, h *fakeHost)
		writes  []string
		reports []string
		failure metrics.HoldFailure
	}{
		"Quiet": {
			reason: "Without a request nothing is written.",
			hold:   reclaim.HoldKill,
			story:  func(*agentProcess, *fakeHost) {},
		},
		"Matched": {
			reason: "Nothing is reported or killed before the request is on the Node.",
			hold:   reclaim.HoldKill,
			story:  func(a *agentProcess, _ *fakeHost) { a.match() },
			writes: freeze,
		},
		"Delivered": {
			reason:  "The report is one text, after the kill.",
			hold:    reclaim.HoldKill,
			story:   func(a *agentProcess, _ *fakeHost) { a.match(); a.now = a.now.Add(10 * time.Millisecond); a.Requested() },
			writes:  and(freeze, []string{"kill pod1", "kill pod2"}),
			reports: []string{"pods=2 running=0 cpu_ms=0 killed=2 memory_ms=512"},
		},
		"Devices": {
			reason:  "Freeze kills the pods that hold a device.",
			hold:    reclaim.HoldFreeze,
			node:    Node{Requested: true},
			writes:  and(freeze, []string{"kill pod2"}),
			reports: []string{"pods=2 running=0 cpu_ms=0 killed=1 memory_ms=2"},
		},
		"FreezeOnly": {
			reason:  "FreezeOnly kills none.",
			hold:    reclaim.HoldFreezeOnly,
			node:    Node{Requested: true},
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Pods: 2})},
		},
		"Cleared": {
			reason:  "The hold and its report end with the request.",
			hold:    reclaim.HoldFreezeOnly,
			node:    Node{Requested: true},
			story:   func(a *agentProcess, _ *fakeHost) { a.Observe(Node{Report: text(reclaim.HoldState{Pods: 2})}) },
			writes:  and(freeze, release),
			reports: []string{text(reclaim.HoldState{Pods: 2}), ""},
		},
		"NotAsked": {
			reason:  "So they do with the Config.",
			hold:    reclaim.HoldFreezeOnly,
			node:    Node{Requested: true},
			story:   func(a *agentProcess, _ *fakeHost) { a.Configure(withHold(reclaim.HoldNone)) },
			writes:  and(freeze, release),
			reports: []string{text(reclaim.HoldState{Pods: 2}), ""},
		},
		"ConfigDeleted": {
			reason: "The ConfigMap is deleted with the Node. The pods run until the host is reset.",
			hold:   reclaim.HoldFreezeOnly,
			node:   Node{Requested: true},
			story: func(a *agentProcess, _ *fakeHost) {
				a.Configure(reclaim.Config{})
				a.steps()
				a.stop(context.Background())
			},
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Pods: 2})},
		},
		"Inert": {
			reason: "A Config without patterns has no hold, and ends one with its request.",
			hold:   reclaim.HoldFreezeOnly,
			node:   Node{Requested: true},
			story: func(a *agentProcess, _ *fakeHost) {
				a.Configure(reclaim.Config{Hold: reclaim.HoldFreezeOnly})
				a.Observe(Node{})
				a.steps()
				a.Configure(reclaim.Config{Hold: reclaim.HoldFreezeOnly})
				a.Observe(Node{Requested: true})
			},
			writes:  and(freeze, release),
			reports: []string{text(reclaim.HoldState{Pods: 2}), ""},
		},
		"Outdated": {
			reason: "A read that started before the request does not end the hold.",
			hold:   reclaim.HoldFreezeOnly,
			story: func(a *agentProcess, _ *fakeHost) {
				before := a.now
				a.now = a.now.Add(1)
				a.match()
				between := a.now
				a.now = a.now.Add(1)
				a.Requested()
				a.Holder.Observe(Node{}, before)
				a.Holder.Observe(Node{}, between)
			},
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Pods: 2})},
		},
		"TwoHolds": {
			reason: "Each hold is measured from its own match.",
			hold:   reclaim.HoldFreezeOnly,
			story: func(a *agentProcess, _ *fakeHost) {
				for range 2 {
					a.now = a.now.Add(time.Hour)
					a.match()
					a.Requested()
					a.steps()
					a.Observe(Node{Report: text(reclaim.HoldState{Pods: 2})})
					a.steps()
				}
			},
			writes:  and(freeze, release, freeze, release),
			reports: []string{text(reclaim.HoldState{Pods: 2}), "", text(reclaim.HoldState{Pods: 2}), ""},
		},
		"Inherited": {
			reason:  "The report of the predecessor stays: it has measured.",
			hold:    reclaim.HoldFreezeOnly,
			host:    func(h *fakeHost) { h.pods["pod1"].podState = podState{marked: true, frozen: true} },
			node:    Node{Requested: true, Report: "pods=1 running=0 cpu_ms=9 killed=0 memory_ms=0"},
			writes:  []string{"mark pod2", "freeze pod2"},
			reports: nil,
		},
		"InheritedUnreported": {
			reason:  "A predecessor that crashed before its report leaves that to its successor.",
			hold:    reclaim.HoldFreezeOnly,
			host:    func(h *fakeHost) { h.pods["pod1"].podState = podState{marked: true, frozen: true} },
			node:    Node{Requested: true},
			writes:  []string{"mark pod2", "freeze pod2"},
			reports: []string{text(reclaim.HoldState{Pods: 2})},
		},
		"InheritedWithoutRequest": {
			reason: "What the predecessor froze is released.",
			hold:   reclaim.HoldKill,
			host:   func(h *fakeHost) { h.pods["pod1"].podState = podState{marked: true, frozen: true} },
			writes: []string{"unfreeze pod1", "unmark pod1"},
		},
		"InheritedWithoutHold": {
			reason: "So it is if no hold is configured any more.",
			hold:   reclaim.HoldNone,
			host:   func(h *fakeHost) { h.pods["pod1"].podState = podState{marked: true, frozen: true} },
			node:   Node{Requested: true},
			writes: []string{"unfreeze pod1", "unmark pod1"},
		},
		"Foreign": {
			reason: "A pod that something else froze is not touched.",
			hold:   reclaim.HoldKill,
			host:   func(h *fakeHost) { h.pods["pod1"].frozen = true },
			node:   Node{Requested: true},
			story:  func(a *agentProcess, _ *fakeHost) { a.Observe(Node{}) },
			writes: []string{
				"mark pod2", "freeze pod2", "kill pod2", "unfreeze pod2", "unmark pod2",
			},
			reports: []string{"pods=1 running=0 cpu_ms=0 killed=1 memory_ms=0", ""},
		},
		"ControlPlane": {
			reason:  "Its pods may be the API server.",
			hold:    reclaim.HoldKill,
			node:    Node{ControlPlane: true},
			story:   func(a *agentProcess, _ *fakeHost) { a.match(); a.Requested() },
			reports: []string{text(reclaim.HoldState{Unavailable: controlPlane})},
			failure: metrics.HoldUnavailable,
		},
		"AnotherMachine": {
			reason:  "A refusal releases what the match froze.",
			hold:    reclaim.HoldFreezeOnly,
			story:   func(a *agentProcess, _ *fakeHost) { a.match(); a.Refuse("another machine") },
			writes:  and(freeze, release),
			reports: []string{text(reclaim.HoldState{Unavailable: "another machine"})},
			failure: metrics.HoldUnavailable,
		},
		"MachineAgain": {
			reason:  "A Node that accepts the request is this machine, whatever it was before.",
			hold:    reclaim.HoldFreezeOnly,
			story:   func(a *agentProcess, _ *fakeHost) { a.Refuse("another machine"); a.steps(); a.match(); a.Requested() },
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Unavailable: "another machine"}), text(reclaim.HoldState{Pods: 2})},
			failure: metrics.HoldUnavailable,
		},
		"IdentifiedLater": {
			reason:  "A Node whose kubelet has reported the machine ID since is held, before its request.",
			hold:    reclaim.HoldFreezeOnly,
			node:    Node{Foreign: "another machine"},
			story:   func(a *agentProcess, _ *fakeHost) { a.Observe(Node{}); a.steps(); a.match() },
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Unavailable: "another machine"}), ""},
			failure: metrics.HoldUnavailable,
		},
		"Unblocked": {
			reason: "The owner has the CPU since the first freeze: the pause for an attempt to deliver the request is no second hold.",
			hold:   reclaim.HoldFreezeOnly,
			story: func(a *agentProcess, _ *fakeHost) {
				a.match()
				a.now = a.now.Add(time.Minute)
				a.Unblock(true)
				a.steps()
				a.Unblock(false)
				a.Requested()
			},
			writes:  and(freeze, release, freeze),
			reports: []string{text(reclaim.HoldState{Pods: 2})},
		},
		"KilledAgain": {
			reason: "Pods that ran for a read are killed again. The report stays.",
			hold:   reclaim.HoldKill,
			node:   Node{Requested: true},
			story: func(a *agentProcess, h *fakeHost) {
				a.UnblockRead(true)
				a.steps()
				h.pods["pod1"].empty, h.pods["pod2"].empty = false, false
				a.UnblockRead(false)
			},
			writes:  and(freeze, []string{"kill pod1", "kill pod2"}, release, freeze, []string{"kill pod1", "kill pod2"}),
			reports: []string{"pods=2 running=0 cpu_ms=0 killed=2 memory_ms=0"},
		},
		"DeviceOpenedDuringARead": {
			reason: "A pod that ran for a read is searched again.",
			hold:   reclaim.HoldFreeze,
			host:   func(h *fakeHost) { h.device = noDevice },
			node:   Node{Requested: true},
			story: func(a *agentProcess, h *fakeHost) {
				a.UnblockRead(true)
				a.steps()
				h.device = holdsDevice
				a.UnblockRead(false)
			},
			writes:  and(freeze, release, freeze, []string{"kill pod2"}),
			reports: []string{text(reclaim.HoldState{Pods: 2})},
		},
		"ClearedDuringARead": {
			reason: "A read that shows no request is followed by no kill.",
			hold:   reclaim.HoldKill,
			node:   Node{Requested: true},
			story: func(a *agentProcess, _ *fakeHost) {
				a.UnblockRead(true)
				a.steps()
				a.Observe(Node{})
				a.UnblockRead(false)
			},
			writes:  and(freeze, []string{"kill pod1", "kill pod2"}, release),
			reports: []string{"pods=2 running=0 cpu_ms=0 killed=2 memory_ms=0", ""},
		},
		"RefusedUnblocked": {
			reason: "A hold after a refusal that came during such a pause is measured from its own match.",
			hold:   reclaim.HoldFreezeOnly,
			story: func(a *agentProcess, _ *fakeHost) {
				a.match()
				a.Unblock(true)
				a.steps()
				a.Refuse("another machine")
				a.steps()
				a.Unblock(false)
				a.steps()
				a.now = a.now.Add(time.Minute)
				a.Observe(Node{})
				a.steps()
				a.match()
				a.Requested()
			},
			writes:  and(freeze, release, freeze),
			reports: []string{text(reclaim.HoldState{Unavailable: "another machine"}), "", text(reclaim.HoldState{Pods: 2})},
			failure: metrics.HoldUnavailable,
		},
		"NoTree": {
			reason:  "An agent without the mount reports it.",
			hold:    reclaim.HoldFreeze,
			story:   func(a *agentProcess, _ *fakeHost) { a.match() },
			host:    func(h *fakeHost) { h.unmounted = true },
			reports: []string{text(reclaim.HoldState{Unavailable: noTree})},
			failure: metrics.HoldUnavailable,
		},
		"NoTreeNotAsked": {
			reason: "But only if the Config has a hold.",
			hold:   reclaim.HoldNone,
			host:   func(h *fakeHost) { h.unmounted = true },
			node:   Node{Requested: true},
		},
		"LeftOver": {
			reason:  "A report that is no longer true is removed.",
			hold:    reclaim.HoldNone,
			host:    func(h *fakeHost) { h.unmounted = true },
			node:    Node{Report: text(reclaim.HoldState{Unavailable: noTree})},
			reports: []string{""},
		},
		"NoOwnPod": {
			reason:  "An agent that does not know its own pod freezes none.",
			hold:    reclaim.HoldFreeze,
			host:    func(h *fakeHost) { h.broken[""] = errors.New("no own pod") },
			node:    Node{Requested: true},
			reports: []string{text(reclaim.HoldState{Unavailable: "no own pod"})},
			failure: metrics.HoldListing,
		},
		"ReadOnly": {
			reason:  "A tree that became read-only is reported as unavailable.",
			hold:    reclaim.HoldFreeze,
			host:    func(h *fakeHost) { h.broken["pod1"], h.broken["pod2"] = syscall.EROFS, syscall.EROFS },
			node:    Node{Requested: true},
			reports: []string{text(reclaim.HoldState{Unavailable: syscall.EROFS.Error()})},
			failure: metrics.HoldFreezing,
		},
		"OnePodFails": {
			reason:  "The other pods are held all the same.",
			hold:    reclaim.HoldFreezeOnly,
			host:    func(h *fakeHost) { h.broken["pod1"] = syscall.EIO },
			node:    Node{Requested: true},
			writes:  []string{"mark pod2", "freeze pod2"},
			reports: []string{text(reclaim.HoldState{Pods: 1, Running: 1})},
			failure: metrics.HoldFreezing,
		},
		"ReleaseFails": {
			reason: "A release is repeated until it succeeds.",
			hold:   reclaim.HoldFreezeOnly,
			story: func(a *agentProcess, h *fakeHost) {
				a.match()
				h.broken["pod1"] = syscall.EIO
				a.Configure(withHold(reclaim.HoldNone))
				a.steps()
				delete(h.broken, "pod1")
			},
			writes:  and(freeze, release[2:], release[:2]),
			failure: metrics.HoldReleasing,
		},
		"Late": {
			reason:  "A pod that waits for a disk does not delay the report for longer than a second.",
			hold:    reclaim.HoldFreezeOnly,
			host:    func(h *fakeHost) { h.pods["pod1"].busy = true },
			node:    Node{Requested: true},
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Pods: 1, Running: 1})},
			failure: metrics.HoldFreezing,
		},
		"AllLate": {
			reason:  "Pods that do not stop in time are counted. The hold is not unavailable.",
			hold:    reclaim.HoldFreezeOnly,
			host:    func(h *fakeHost) { h.pods["pod1"].busy, h.pods["pod2"].busy = true, true },
			node:    Node{Requested: true},
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Running: 2})},
			failure: metrics.HoldFreezing,
		},
		"LateKilled": {
			reason:  "A pod that was killed before it was frozen does not run.",
			hold:    reclaim.HoldKill,
			host:    func(h *fakeHost) { h.pods["pod1"].busy = true },
			node:    Node{Requested: true},
			writes:  and(freeze, []string{"kill pod1", "kill pod2"}),
			reports: []string{text(reclaim.HoldState{Pods: 1, Killed: 2, Memory: 0})},
		},
		"SlowDeath": {
			reason:  "A pod that does not die does not delay it either.",
			hold:    reclaim.HoldKill,
			host:    func(h *fakeHost) { h.pods["pod1"].undying = true },
			node:    Node{Requested: true},
			writes:  and(freeze, []string{"kill pod1", "kill pod2"}),
			reports: []string{"pods=2 running=0 cpu_ms=0 killed=1 memory_ms=0"},
			failure: metrics.HoldKilling,
		},
		"Unreadable": {
			reason:  "A pod whose open files cannot be read is not killed.",
			hold:    reclaim.HoldFreeze,
			host:    func(h *fakeHost) { h.device = unknownDevice },
			node:    Node{Requested: true},
			writes:  freeze,
			reports: []string{text(reclaim.HoldState{Pods: 2})},
			failure: metrics.HoldSearching,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFakeHost("pod1", "pod2")
				h.device = holdsDevice
				if tc.host != nil {
					tc.host(h)
				}
				a := newAgentProcess(openFake(h))
				if h.unmounted {
					a.open = nil
				}
				search := a.search
				a.search = func(root string, pods []deviceSearch, found func(deviceSearch)) {
					search(root, pods, func(s deviceSearch) {
						if s.owns == holdsDevice {
							s.owns = h.device
						}
						found(s)
					})
				}
				a.synchronous = synctest.Wait
				a.Observe(tc.node)
				a.Configure(withHold(tc.hold))
				a.steps()
				if tc.story != nil {
					tc.story(a, h)
				}
				a.steps()
				// Pods are killed in any order.
				slices.SortStableFunc(h.writes, func(a, b string) int {
					if strings.HasPrefix(a, "kill") && strings.HasPrefix(b, "kill") {
						return strings.Compare(a, b)
					}
					return 0
				})
				if diff := cmp.Diff(tc.writes, h.writes); diff != "" {
					t.Errorf("%s\nwrites: -want, +got:\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.reports, a.reports); diff != "" {
					t.Errorf("%s\nreports: -want, +got:\n%s", tc.reason, diff)
				}
				if tc.failure != "" && a.counts.HoldFailures.Of(tc.failure).Load() == 0 {
					t.Errorf("%s\nno failure %q is counted", tc.reason, tc.failure)
				}
				for _, f := range []metrics.HoldFailure{metrics.HoldUnavailable, metrics.HoldListing, metrics.HoldFreezing, metrics.HoldReleasing, metrics.HoldKilling, metrics.HoldSearching} {
					if n := a.counts.HoldFailures.Of(f).Load(); f != tc.failure && n > 0 {
						t.Errorf("%s\n%d failures %q are counted", tc.reason, n, f)
					}
				}
			})
		})
	}
}

// TestUnknownNodeIsHeldAgain restarts an agent during a hold while the API server does not answer. Each attempt to reach
// it releases the pods, and the successor holds them again.
func TestUnknownNodeIsHeldAgain(t *testing.T) {
	const measured = "pods=1 running=0 cpu_ms=9 killed=0 memory_ms=0"
	h := newFakeHost("pod1", "pod2")
	h.pods["pod1"].podState = podState{marked: true, frozen: true}
	a := newAgentProcess(openFake(h))
	a.Configure(withHold(reclaim.HoldFreezeOnly))
	for _, unblock := range []func(bool){a.UnblockRead, a.Unblock, a.UnblockRead} {
		unblock(true)
		a.steps()
		if h.pods["pod1"].frozen {
			t.Error("the attempt may need the pod")
		}
		unblock(false)
		a.steps()
		if want := (podState{marked: true, frozen: true}); h.pods["pod1"].podState != want || h.pods["pod2"].marked {
			t.Errorf("only the pods of the earlier agent process are held again: %+v, %+v", h.pods["pod1"], h.pods["pod2"])
		}
	}
	a.Observe(Node{Requested: true, Report: measured})
	a.steps()
	if len(a.reports) > 0 || !h.pods["pod2"].frozen {
		t.Errorf("the hold goes on, with the report of the earlier agent process: %q, %+v", a.reports, h.pods["pod2"])
	}
	a.Observe(Node{Report: measured})
	a.steps()
	for name, p := range h.pods {
		if p.marked || p.frozen {
			t.Errorf("%s is %+v after the request", name, p)
		}
	}
}

// TestReleasedPodsAreNotHeldAgain ends the hold for good during an attempt to read a Node that was not read yet.
func TestReleasedPodsAreNotHeldAgain(t *testing.T) {
	h := newFakeHost("pod1")
	h.pods["pod1"].podState = podState{marked: true, frozen: true}
	a := newAgentProcess(openFake(h))
	a.UnblockRead(true)
	a.steps()
	a.Configure(withHold(reclaim.HoldNone))
	a.UnblockRead(false)
	a.steps()
	a.Configure(withHold(reclaim.HoldFreezeOnly))
	a.steps()
	if h.pods["pod1"].frozen {
		t.Error("it is held again")
	}
}

// TestEnabled checks that the Node's taints are read only while the Config has a hold.
func TestEnabled(t *testing.T) {
	a := newAgentProcess(nil)
	for _, h := range []reclaim.Hold{"", reclaim.HoldNone, reclaim.HoldFreeze, reclaim.HoldFreezeOnly, reclaim.HoldKill, reclaim.HoldNone} {
		a.Configure(withHold(h))
		if got := a.Enabled(); got != h.Enabled() {
			t.Errorf("Enabled() = %t with the hold %q", got, h)
		}
	}
}

// blockedTree is a tree whose list of pods blocks.
type blockedTree struct {
	fakeTree
	blocked chan struct{}
}

func (t blockedTree) pods() ([]string, error) { <-t.blocked; return t.fakeTree.pods() }

// TestMatchedIsBounded checks that a host whose cgroups are slow delays the request by 50 ms only.
func TestMatchedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost("pod1")
		blocked := blockedTree{fakeTree{h}, make(chan struct{})}
		a := newAgentProcess(nil)
		a.o.Now = time.Now
		a.Observe(Node{})
		a.Configure(withHold(reclaim.HoldFreezeOnly))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { a.Run(ctx); close(ended) }()
		synctest.Wait() // without a tree, the first step ends
		a.mu.Lock()
		a.open = func() (tree, error) { return blocked, nil }
		a.mu.Unlock()
		start := time.Now()
		a.Matched(ctx, start)
		if took := time.Since(start); took != firstPassTimeout {
			t.Errorf("Matched() took %s", took)
		}
		close(blocked.blocked)
		synctest.Wait()
		if !h.pods["pod1"].frozen {
			t.Error("the pod is not frozen after the delay")
		}
		start = time.Now()
		a.Matched(ctx, start)
		if took := time.Since(start); took != 0 {
			t.Errorf("Matched() took %s with a fast host", took)
		}
		cancel()
		<-ended
	})
}

// TestReportAfterAFailedPass has a tree that fails for one pass. The pods are held 250 ms later, so the report must not
// say that a hold is unavailable: the manager takes the mount away from an agent that reports so.
func TestReportAfterAFailedPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost("pod1", "pod3")
		h.broken[""] = errors.New("the file system is read-only")
		a := newAgentProcess(openFake(h))
		a.synchronous = synctest.Wait
		a.Observe(Node{})
		a.Configure(withHold(reclaim.HoldFreezeOnly))
		a.steps()
		delete(h.broken, "")
		a.steps()
		h.broken[""] = errors.New("the file system is read-only")
		a.match()
		a.Requested()
		a.steps()
		delete(h.broken, "")
		a.steps()
		last := a.reports[len(a.reports)-1]
		s, _ := reclaim.ParseHoldState(last)
		if h.pods["pod1"].frozen && s.Unavailable != "" {
			t.Errorf("pods are held, and the last report is %q", last)
		}
	})
}

// TestReleaseRetriesTheTree has an agent that cannot open its tree at the first try, after a hold of its predecessor.
func TestReleaseRetriesTheTree(t *testing.T) {
	h := newFakeHost("pod1")
	h.pods["pod1"].podState = podState{marked: true, frozen: true}
	tries := 0
	a := newAgentProcess(func() (tree, error) {
		if tries++; tries == 1 {
			return nil, errors.New("cannot allocate memory")
		}
		return fakeTree{h}, nil
	})
	a.Observe(Node{})
	a.Configure(withHold(reclaim.HoldNone))
	// The agent does not read its Node without a hold, so nothing else wakes the Holder.
	for range 1000 {
		next := a.step()
		if next == 0 {
			break
		}
		a.now = a.now.Add(next)
	}
	if h.pods["pod1"].frozen {
		t.Errorf("the pod of the predecessor stays frozen; %d tries to open the tree", tries)
	}
}

// TestOutdatedReadDoesNotKill turns the hold off during a person's request, and on as Kill an hour later. Without a
// hold the agent does not read its Node, so what it knows is an hour old: the request may be gone.
func TestOutdatedReadDoesNotKill(t *testing.T) {
	h := newFakeHost("pod1")
	a := newAgentProcess(openFake(h))
	a.Observe(Node{Requested: true})
	a.Configure(withHold(reclaim.HoldFreezeOnly))
	a.steps()
	a.Configure(withHold(reclaim.HoldNone))
	a.steps()
	a.now = a.now.Add(time.Hour)
	a.Configure(withHold(reclaim.HoldKill))
	a.steps()
	if last := h.writes[len(h.writes)-1]; last == "kill pod1" {
		t.Errorf("a pod was killed: %v", h.writes)
	}
}

// TestMetadataKeepTheRefusal: while no hold is configured, the agent reads only the metadata of its Node, which do not
// show the machine ID. The Node is still another machine.
func TestMetadataKeepTheRefusal(t *testing.T) {
	h := newFakeHost("pod1")
	a := newAgentProcess(openFake(h))
	a.Observe(Node{Requested: true, Foreign: "another machine ID"})
	a.Observe(Node{Requested: true, Partial: true})
	a.Configure(withHold(reclaim.HoldKill))
	a.steps()
	if len(h.writes) > 0 {
		t.Errorf("the pods of another machine's Node are held: %v", h.writes)
	}
}

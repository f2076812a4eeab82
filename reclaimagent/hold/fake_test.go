// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
)

// fakePod is a pod without a kernel.
type fakePod struct {
	podState
	empty bool
	// busy and undying mean that its processes wait for a disk: they do not freeze, or do not die.
	busy, undying bool
}

// fakeHost has the pods of a host in memory, without the agent's own. Freezes and kills take effect at once.
type fakeHost struct {
	pods map[string]*fakePod
	// writes are all writes, in order.
	writes []string
	// broken is the error of each operation on a pod, and of verify and pods under "".
	broken map[string]error
	// unmounted means that the agent has no tree. device is the result of a search of a pod that has a device.
	unmounted bool
	device    ownership
}

func newFakeHost(pods ...string) *fakeHost {
	h := &fakeHost{pods: map[string]*fakePod{}, broken: map[string]error{}}
	for _, pod := range pods {
		h.pods[pod] = &fakePod{}
	}
	return h
}

func (h *fakeHost) verify() error { return h.broken[""] }

func (h *fakeHost) list() ([]string, error) {
	return slices.Sorted(maps.Keys(h.pods)), h.broken[""]
}

func (h *fakeHost) pod(name string) (*fakePod, error) {
	if err := h.broken[name]; err != nil {
		return nil, err
	}
	if p := h.pods[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: %s", errPodGone, name)
}

func (h *fakeHost) state(pod string) (podState, error) {
	p, err := h.pod(pod)
	if err != nil {
		return podState{}, err
	}
	return p.podState, nil
}

func (h *fakeHost) apply(pod string, c change) error {
	p, err := h.pod(pod)
	if err != nil {
		return err
	}
	h.writes = append(h.writes, fmt.Sprintf("%s %s", []string{"mark", "freeze", "unfreeze", "unmark"}[c], pod))
	switch c {
	case setMark:
		p.marked = true
	case clearMark:
		p.marked = false
	default:
		p.frozen = c == setFrozen
	}
	return nil
}

func (h *fakeHost) kill(pod string) error {
	p, err := h.pod(pod)
	if err != nil {
		return err
	}
	h.writes = append(h.writes, "kill "+pod)
	p.empty = !p.undying
	return nil
}

func (h *fakeHost) events(pod string) (frozen, populated bool, err error) {
	p, err := h.pod(pod)
	if err != nil {
		return false, false, err
	}
	return p.frozen && !p.busy, !p.empty, nil
}

func (h *fakeHost) processes(pod string) ([]int, error) {
	_, err := h.pod(pod)
	return []int{len(pod)}, err
}

func (*fakeHost) close() {}

// fakeTree makes a fakeHost a tree.
type fakeTree struct{ *fakeHost }

func (t fakeTree) pods() ([]string, error) { return t.list() }

// mortal is the tree of an agent process that dies after a number of writes, without a limit if it is negative.
type mortal struct {
	tree
	writes int
	onKill func(pod string)
}

var errDead = errors.New("this agent process was killed")

func (m *mortal) write() error {
	if m.writes == 0 {
		return errDead
	}
	m.writes--
	return nil
}

func (m *mortal) apply(pod string, c change) error {
	if err := m.write(); err != nil {
		return err
	}
	return m.tree.apply(pod, c)
}

func (m *mortal) kill(pod string) error {
	if err := m.write(); err != nil {
		return err
	}
	if m.onKill != nil {
		m.onKill(pod)
	}
	return m.tree.kill(pod)
}

func (*mortal) close() {}

// agentProcess is a Holder whose steps and clock the test controls.
type agentProcess struct {
	*Holder
	now     time.Time
	counts  *metrics.Set
	reports []string
	// synchronous waits for the goroutines of the Holder.
	synchronous func()
}

func newAgentProcess(open func() (tree, error)) *agentProcess {
	a := &agentProcess{now: time.Unix(1000, 0), counts: &metrics.Set{}}
	a.Holder = New(Options{
		Log: slog.New(slog.DiscardHandler), Metrics: a.counts, Now: func() time.Time { return a.now },
		Report: func(text string) { a.reports = append(a.reports, text) }, LastRead: func(context.Context) {},
	})
	a.open = open
	a.search = func(_ string, pods []deviceSearch, found func(deviceSearch)) {
		for _, p := range pods {
			if hasDevice(p.pod) {
				p.owns = holdsDevice
			}
			found(p)
		}
	}
	return a
}

// hasDevice reports whether a pod of a test holds a device: if its name ends in an even digit.
func hasDevice(pod string) bool { return strings.ContainsAny(pod[len(pod)-1:], "02468") }

func openFake(h *fakeHost) func() (tree, error) {
	return func() (tree, error) { return fakeTree{h}, nil }
}

// steps runs until nothing is pending, and two passes more.
func (a *agentProcess) steps() {
	for passes := 0; passes < 2; {
		next := a.step()
		if a.synchronous != nil {
			a.synchronous()
		}
		if next == 0 {
			return
		}
		if next > measureInterval {
			passes++
		}
		a.now = a.now.Add(next)
	}
}

// Observe is a read of the Node.
func (a *agentProcess) Observe(n Node) {
	a.Holder.Observe(n, a.now)
}

// match is Matched without the wait.
func (a *agentProcess) match() {
	at := a.now
	a.update(func() { a.changed, a.facts.matched, a.since = at, true, at })
	a.steps()
}

func withHold(h reclaim.Hold) reclaim.Config {
	c := reclaim.ConfigFor([]string{"java"})
	c.Hold = h
	return c
}

// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// world is a host on which a random order of events happens.
type world interface {
	tree() (tree, error)
	add(pod string)
	remove(pod string)
	// freeze is the freeze of something else than the agent.
	freeze(pod string, on bool)
	state(pod string) podState
}

type fakeWorld struct{ *fakeHost }

func (w fakeWorld) tree() (tree, error) { return fakeTree(w), nil }

func (w fakeWorld) add(pod string)    { w.pods[pod] = &fakePod{} }
func (w fakeWorld) remove(pod string) { delete(w.pods, pod) }

func (w fakeWorld) freeze(pod string, on bool) { w.pods[pod].frozen = on }
func (w fakeWorld) state(pod string) podState  { return w.pods[pod].podState }

// history is the model of a random order of events: what the agent knows, and what froze each pod.
type history struct {
	world
	// untouched returns an error if something outside of the pods changed, nil if there is nothing else.
	untouched func() error
	agent     *agentProcess
	mortal    *mortal
	config    reclaim.Hold
	// requested means that the Node has a request, matched that one is on its way.
	requested, matched bool
	// gone means that the ConfigMap is deleted.
	gone bool
	// dying means that the agent process dies at one of its next writes.
	dying bool
	// wrong is a kill that must not be.
	wrong string
	// foreign are all pods, and whether something else froze them.
	foreign map[string]bool
	count   int
}

// start starts an agent process.
func (m *history) start() {
	m.matched = false
	m.agent = newAgentProcess(func() (tree, error) {
		t, err := m.tree()
		m.mortal = &mortal{tree: t, writes: -1, onKill: m.killed}
		return m.mortal, err
	})
	m.agent.Observe(Node{Requested: m.requested})
	m.agent.Configure(m.current())
	m.agent.steps()
}

// current is the Config of a new agent process.
func (m *history) current() reclaim.Config {
	if m.gone {
		m.config = reclaim.HoldNone
		return reclaim.Config{}
	}
	return withHold(m.config)
}

// killed checks a kill.
func (m *history) killed(pod string) {
	allowed := m.config == reclaim.HoldKill || (m.config == reclaim.HoldFreeze && hasDevice(pod))
	if !m.requested || !allowed || m.foreign[pod] || !m.state(pod).marked {
		m.wrong = fmt.Sprintf("pod %s was killed with %s, requested %t, by something else %t", pod, m.config, m.requested, m.foreign[pod])
	}
}

func (m *history) pick(rt *rapid.T, which func(pod string) bool) string {
	pods := slices.Sorted(maps.Keys(m.foreign))
	pods = slices.DeleteFunc(pods, func(p string) bool { return !which(p) })
	if len(pods) == 0 {
		return ""
	}
	return rapid.SampledFrom(pods).Draw(rt, "pod")
}

func (m *history) event(rt *rapid.T) {
	hold := rapid.SampledFrom([]reclaim.Hold{reclaim.HoldNone, reclaim.HoldFreeze, reclaim.HoldFreezeOnly, reclaim.HoldKill})
	switch rapid.SampledFrom([]string{
		"match", "match", "deliver", "deliver", "clear", "person", "kill", "kill", "term", "config", "gone", "add", "add", "remove",
		"freeze", "unfreeze", "refuse", "read",
	}).Draw(rt, "event") {
	case "match":
		if !m.requested && !m.gone {
			m.matched = true
			m.agent.match()
		}
	case "deliver":
		if m.matched {
			m.matched, m.requested = false, true
			m.agent.Requested()
		}
	case "clear":
		if m.requested {
			m.requested = false
			m.agent.Observe(Node{})
		}
	case "person":
		if !m.matched && !m.gone {
			m.requested = true
			m.agent.Observe(Node{Requested: true})
		}
	case "kill":
		// The process dies at a write of the next event. Then the Node and the Config may change.
		if m.mortal != nil {
			m.mortal.writes = rapid.IntRange(0, 6).Draw(rt, "writes")
		}
		m.dying = true
		m.event(rt)
		m.agent.steps()
		m.dying = false
		m.requested = rapid.Bool().Draw(rt, "requested")
		m.config, m.gone = hold.Draw(rt, "hold"), rapid.Bool().Draw(rt, "gone")
		m.start()
	case "term":
		m.agent.stop(context.Background())
		m.check(rt, "after SIGTERM", m.requested)
		m.start()
	case "gone":
		m.gone = true
		m.agent.Configure(reclaim.Config{})
		if !m.requested && !m.matched {
			m.config = reclaim.HoldNone
		}
	case "config":
		m.gone = false
		m.config = hold.Draw(rt, "hold")
		m.agent.Configure(withHold(m.config))
		m.agent.Observe(Node{Requested: m.requested}) // The agent reads the Node every five seconds.
	case "add":
		pod := fmt.Sprintf("pod%d", m.count)
		m.count++
		m.add(pod)
		m.foreign[pod] = false
	case "remove":
		if pod := m.pick(rt, func(string) bool { return true }); pod != "" {
			m.remove(pod)
			delete(m.foreign, pod)
		}
	case "freeze":
		// The kernel has one switch. A pod that the agent holds cannot be frozen by something else as well.
		if pod := m.pick(rt, func(p string) bool { return !m.state(p).marked }); pod != "" {
			m.freeze(pod, true)
			m.foreign[pod] = true
		}
	case "unfreeze":
		if pod := m.pick(rt, func(string) bool { return true }); pod != "" {
			m.freeze(pod, false)
			m.foreign[pod] = false
		}
	case "read":
		m.agent.UnblockRead(true)
		m.agent.steps()
		m.agent.UnblockRead(false)
	case "refuse":
		if m.matched {
			m.matched = false
			m.agent.Refuse("another machine")
			m.agent.steps()
			m.check(rt, "after a refusal", false)
			m.start()
		}
	}
}

// check compares all pods with the model, for an agent that knows the Node and the Config.
func (m *history) check(rt *rapid.T, when string, wanted bool) {
	if m.dying {
		return
	}
	if m.wrong != "" {
		rt.Fatal(when, m.wrong)
	}
	held := wanted && m.config.Enabled()
	for pod, foreign := range m.foreign {
		s := m.state(pod)
		if s.frozen != (held || foreign) {
			rt.Fatalf("%s: pod %s is %+v; held %t, frozen by something else %t", when, pod, s, held, foreign)
		}
		if s.marked && (!held || foreign) {
			rt.Fatalf("%s: pod %s has a mark; held %t, frozen by something else %t", when, pod, held, foreign)
		}
	}
	if m.untouched == nil {
		return
	}
	if err := m.untouched(); err != nil {
		rt.Fatal(when, err)
	}
}

// play runs one random order of events.
func play(rt *rapid.T, w world, untouched func() error, events int) {
	m := &history{world: w, untouched: untouched, config: reclaim.HoldFreeze, foreign: map[string]bool{}}
	m.start()
	for range rapid.IntRange(1, events).Draw(rt, "events") {
		m.event(rt)
		m.agent.steps()
		m.check(rt, "after an event", m.requested || m.matched)
	}
}

// TestRandomOrders checks that nothing stays frozen that should run, and that nothing runs that should be frozen.
func TestRandomOrders(t *testing.T) {
	orders := 0
	for orders < 1000 && !t.Failed() { // rapid runs 100 orders at a time, 20 with -short
		rapid.Check(t, func(rt *rapid.T) {
			orders++
			play(rt, fakeWorld{newFakeHost()}, nil, 40)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"
)

const (
	// wipeFloor is the smallest Cluster in which a wipe is detected. wipeFraction is the fraction of its machines that
	// remain without a wipe: one in ten.
	wipeFloor    = 10
	wipeFraction = 10
	// noticed bounds how late a manager detects a wipe. confirmed is less than the time for its confirmation. In
	// between no departure may start. The period exceeds the cap's window: otherwise departures that only the cap
	// defers could start before and after it.
	noticed   = 7 * time.Second
	confirmed = 18 * time.Second
)

// Wipe is the rule that no departure starts before a wipe is confirmed: other clients have deleted nearly all Machines
// of a Cluster, or their ScheduledMachines. The rule does not evaluate schedules.
func Wipe() Rule { return &wipe{since: map[Object]time.Time{}} }

type wipe struct {
	world world
	// since is since when fewer than one in ten machines of a Cluster remain.
	since map[Object]time.Time
}

func (*wipe) Name() string { return "wipe" }
func (*wipe) Question() string {
	return "Does nobody leave until it is confirmed that nearly all machines of a Cluster were deleted?"
}

func (*wipe) End() []Verdict { return nil }

func (w *wipe) Judge(r Record) []Verdict {
	before := w.world.machine(r)
	s := w.world.see(r)
	var verdicts []Verdict
	if s != nil && s.lane == unscheduled {
		verdicts = w.starts(r, s.machine)
	}
	if r.Accepted() && r.Got != nil && (r.Object.isMachine() || r.Object.isScheduledMachine()) {
		w.count(r, before)
	}
	return verdicts
}

// starts judges the start of an unannounced departure.
func (w *wipe) starts(r Record, m *machine) []Verdict {
	of := m.cluster
	since, wiped := w.since[of]
	after := r.At.Sub(since)
	switch {
	case !wiped || after < noticed:
		return nil
	case after >= confirmed:
		return kept(r)
	}
	return []Verdict{{
		Object: of, At: r.At, IDs: []string{r.ID},
		Broken: fmt.Sprintf("%s started to leave %v after nearly all machines had been deleted", m.Name, after.Truncate(time.Second)),
		Should: "nobody should have, until that was confirmed",
	}}
}

// count updates since for the Clusters that a request may have changed. before is the state of its Machine before.
func (w *wipe) count(r Record, before *machine) {
	for of := range w.clusters(r, before) {
		run, stay := w.machines(of)
		switch _, wiped := w.since[of]; {
		case run < wipeFloor && !wiped, stay*wipeFraction >= run:
			delete(w.since, of)
		case !wiped:
			w.since[of] = r.At
		}
	}
}

// clusters returns the Clusters whose Machine, or ScheduledMachine, the request is about.
func (w *wipe) clusters(r Record, before *machine) map[Object]bool {
	clusters := map[Object]bool{}
	for _, m := range []*machine{before, w.world.machine(r)} {
		if m != nil {
			clusters[m.cluster] = true
		}
	}
	if r.Object.isMachine() {
		return clusters
	}
	for _, m := range w.world.machines {
		if m.parent == r.Object {
			clusters[m.cluster] = true
		}
	}
	return clusters
}

// machines returns how many machines of a Cluster that have had a Node run, and how many of these no client has
// deleted.
func (w *wipe) machines(of Object) (run, stay int) {
	for _, m := range w.world.machines {
		if m.parent.Name == "" || m.cluster != of || !m.runs() || !w.world.ranOnce(m) {
			continue
		}
		run++
		if sm := w.world.scheduled[m.parent]; !m.Deleting && (sm == nil || !sm.Deleting) {
			stay++
		}
	}
	return run, stay
}

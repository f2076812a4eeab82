// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"
)

const (
	// wipeFloor is the smallest Cluster that a wipe is noticed in, and wipeFraction the part of
	// its machines that stays where there is none: one in ten.
	wipeFloor    = 10
	wipeFraction = 10
	// noticed is when a manager knows of a wipe at the latest, and confirmed less than it takes to
	// confirm one. In between nobody starts to leave. It is longer than the time in which starts
	// are counted: else those that only the cap keeps could start before and after it.
	noticed   = 7 * time.Second
	confirmed = 18 * time.Second
)

// Wipe is that nobody starts to leave while it is not confirmed that somebody has deleted
// nearly all machines of a Cluster, or their ScheduledMachines. What schedules want is not
// worked out here.
func Wipe() Rule { return &wipe{since: map[Object]time.Time{}} }

type wipe struct {
	world world
	// since is since when fewer than one in ten machines of a Cluster stay.
	since map[Object]time.Time
}

func (*wipe) Name() string { return "wipe" }
func (*wipe) Question() string {
	return "Does nobody leave until it is confirmed that nearly all machines of a Cluster were deleted?"
}

func (*wipe) End() []Verdict { return nil }

func (w *wipe) Judge(r Record) []Verdict {
	before := w.world.machine(r)
	was, _ := before.departure()
	w.world.see(r)
	if !r.Accepted() || r.Got == nil || !r.Object.isMachine() && !r.Object.isScheduledMachine() {
		return nil
	}
	var verdicts []Verdict
	if text, sets := r.Sent.sets(departureAnnotation); r.Object.isMachine() && r.done("patch", "update") && sets {
		d, readable := departureOf(text)
		if begins := was.Reason == "" || !was.Since.Equal(d.Since); readable && begins && d.Lane == unscheduled {
			verdicts = w.starts(r)
		}
	}
	w.look(r)
	return verdicts
}

// starts judges the start of a departure that nobody announced.
func (w *wipe) starts(r Record) []Verdict {
	of := clusterOf(r)
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
		Broken: fmt.Sprintf("%s started to leave %v after nearly all machines had been deleted", r.Object.Name, after.Truncate(time.Second)),
		Should: "nobody should have, until that was confirmed",
	}}
}

// look notes since when there is a wipe in the Clusters that a request may have changed.
func (w *wipe) look(r Record) {
	for of := range w.clusters(r) {
		run, stay := w.count(of)
		switch _, wiped := w.since[of]; {
		case run < wipeFloor && !wiped, stay*wipeFraction >= run:
			delete(w.since, of)
		case !wiped:
			w.since[of] = r.At
		}
	}
}

// clusters are those of which a Machine, or its ScheduledMachine, is what a request is about.
func (w *wipe) clusters(r Record) map[Object]bool {
	if r.Object.isMachine() {
		return map[Object]bool{clusterOf(r): true}
	}
	clusters := map[Object]bool{}
	for _, m := range w.world.machines {
		if m.scheduledMachine() == r.Object {
			clusters[clusterOf(Record{Object: m.Object, Got: &m.State})] = true
		}
	}
	return clusters
}

// count is how many machines of a Cluster run, and how many of these nobody has deleted.
func (w *wipe) count(of Object) (run, stay int) {
	for _, m := range w.world.of(of) {
		if !m.runs() {
			continue
		}
		run++
		if sm := w.world.scheduled[m.scheduledMachine()]; !m.Deleting && (sm == nil || !sm.Deleting) {
			stay++
		}
	}
	return run, stay
}

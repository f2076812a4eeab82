// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"fmt"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// capPercent is how many percent of a Cluster's machines may start to leave within a window.
	capPercent = 5
	// evaluation bounds how long a manager takes to act on an observation, or to show it. Actions of the world take no
	// time: the second is for deliberate delays of reconcilers.
	evaluation = time.Second
)

// A ledger records changes at the API server, and the rules that they break. It reads none of 5-Spot's records except
// the hook that keeps a Machine from its drain.
type ledger struct {
	// active are the Machines that have not started to leave, by UID.
	active map[types.UID]string
	// starts are the departures of a Cluster, in order. left has the first start of each ScheduledMachine since the
	// story began.
	starts []start
	left   map[string]start
	// owners are the times of owners' requests, kills the times of kill switches.
	owners, kills map[string]time.Time
	// began is the start of the story. signals are the times at which people saw each signal first.
	began   time.Time
	signals map[string]time.Time
	// end is the announced end of a window, zero if there is none.
	end time.Time
	// made are the objects created since the story began. lastWrite is the time of the last request of a manager.
	made      []id
	lastWrite time.Time
	broken    []string
}

// A start is the start of a departure.
type start struct {
	at     time.Time
	exempt bool
}

// count initializes the ledger with the present objects.
func (w *world) count() {
	w.active = map[types.UID]string{}
	for _, obj := range w.api.list("Machine") {
		if m := obj.(*clusterv1.Machine); !started(m) {
			w.active[m.UID] = children.ParentOf(m)
		}
	}
	w.begin()
}

// begin begins the story.
func (w *world) begin() {
	w.began, w.signals, w.left, w.made = w.now, map[string]time.Time{}, map[string]start{}, nil
	w.owners, w.kills = map[string]time.Time{}, map[string]time.Time{}
}

// started reports whether a Machine has started to leave: Cluster API may drain it.
func started(m *clusterv1.Machine) bool {
	_, held := m.Annotations[v1alpha1.PreDrainHookAnnotation]
	return !m.DeletionTimestamp.IsZero() && !held
}

// see records a change.
func (w *world) see(c change) {
	switch c.id.kind {
	case "Machine":
		w.seeMachine(c)
	case "ScheduledMachine":
		w.seeConditions(c)
	}
	if c.from == nil && c.id.kind != "Node" {
		w.made = append(w.made, c.id)
	}
}

func (w *world) seeMachine(c change) {
	is, _ := c.to.(*clusterv1.Machine)
	was, _ := c.from.(*clusterv1.Machine)
	switch {
	case was == nil:
		w.active[is.UID] = children.ParentOf(is)
	case is == nil || started(is):
		w.starting(was)
	}
}

// starting records the start of a departure, and checks the cap.
func (w *world) starting(m *clusterv1.Machine) {
	if _, stays := w.active[m.UID]; !stays {
		return
	}
	delete(w.active, m.UID)
	s := start{at: w.now, exempt: w.exempt(m)}
	w.starts = append(w.starts, s)
	if _, before := w.left[children.ParentOf(m)]; !before {
		w.left[children.ParentOf(m)] = s
	}
	lately, recent, voluntary := 0, 0, 0
	for _, other := range slices.Backward(w.starts) {
		if w.now.Sub(other.at) >= departurecap.MaxWait {
			break
		}
		lately++
		if w.now.Sub(other.at) >= departurecap.Window {
			continue
		}
		recent++
		if !other.exempt {
			voluntary++
		}
	}
	machines := len(w.active) + recent
	if !w.end.IsZero() { // The limit of a shared window end does not shrink.
		machines = len(w.active) + lately
	}
	if may := max(1, capPercent*machines/100); voluntary > may && !s.exempt {
		w.breaks("at %s %d of %d machines have started to leave within %v, and %d may", w.now.Format(time.StampMilli), voluntary, machines, departurecap.Window, may)
	}
}

// exempt reports whether a machine may leave regardless of the others, because of a person or an owner.
func (w *world) exempt(m *clusterv1.Machine) bool {
	sm, _ := w.api.get(id{"ScheduledMachine", m.Namespace, children.ParentOf(m)}).(*v1alpha1.ScheduledMachine)
	if sm != nil && (sm.Spec.KillSwitch || sm.BeingReclaimed()) {
		return true
	}
	c := w.cluster()
	return c != nil && !c.DeletionTimestamp.IsZero()
}

func (w *world) seeConditions(c change) {
	if c.to == nil {
		return
	}
	for _, condition := range c.to.(*v1alpha1.ScheduledMachine).Status.Conditions {
		w.shown(condition.Reason)
	}
}

// shown records a signal that people can see.
func (w *world) shown(reason string) {
	if _, before := w.signals[reason]; !before {
		w.signals[reason] = w.now
	}
}

func (w *world) wrote(write) { w.lastWrite = w.now }

// breaks records a broken rule; of many, the first few.
func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// An outcome is the expected result of a story.
type outcome struct {
	// leaves are the machines that leave; all others stay. some names them if they are neither all nor half. may names
	// machines that may do either.
	leaves    []int
	some, may func(*world) []int
	// shows is the reason of a condition or an Event that must be visible within the evaluation of the input; empty if
	// none is expected.
	shows string
	// held is how long no departure may start, except exempt ones. A wipe is detected only after part of it was
	// observed: in its first evaluation, departures start up to the cap.
	held time.Duration
	// makes reports that objects are created: machines come back.
	makes bool
	// owed bounds the wait of an owner; zero is one evaluation.
	owed time.Duration
	// busy reports that the number of writes has no limit.
	busy bool
}

func (o outcome) wipe() bool {
	return o.shows == v1alpha1.WipeQuarantinedEvent || o.shows == v1alpha1.WipeQuarantineReason
}

// stay checks that no machine has left so far, and begins the story here.
func (w *world) stay() {
	if len(w.left) > 0 {
		w.breaks("%d have left who were to stay", len(w.left))
	}
	w.begin()
}

// hold checks a finished story against the rules.
func (w *world) hold(o outcome) []string {
	if o.shows != "" {
		if at, seen := w.signals[o.shows]; !seen || at.Sub(w.began) > max(o.owed, evaluation) {
			w.breaks("nobody sees %s in time (%v)", o.shows, w.sinceBegin(at, seen))
		}
	}
	var may []int
	if o.may != nil {
		may = o.may(w)
	}
	for i := range w.size {
		s, left := w.left[name(i)]
		leaves := slices.Contains(o.leaves, i)
		switch {
		case slices.Contains(may, i):
		case leaves && !left:
			w.breaks("%s has not left", name(i))
		case left && !leaves:
			w.breaks("%s has left after %v", name(i), s.at.Sub(w.began))
		}
		if at := s.at.Sub(w.began); left && !s.exempt && at < o.held && (at > evaluation || !o.wipe()) {
			w.breaks("%s has left after %v, before that was confirmed", name(i), s.at.Sub(w.began))
		}
	}
	if early := w.early(); o.wipe() && early > 0 {
		w.Logf("%d of %d have left in the evaluation that saw the first of a wipe", early, w.size)
	}
	w.holdUrgent(o)
	if len(w.made) > 0 && !o.makes {
		w.breaks("%d objects were made, the first is %s", len(w.made), w.made[0])
	}
	if !o.busy && w.now.Sub(w.lastWrite) < time.Minute {
		w.breaks("there is no end of writing")
	}
	return w.broken
}

// early returns how many have left in the evaluation that first observed an input.
func (w *world) early() (n int) {
	for _, s := range w.left {
		if !s.exempt && s.at.Sub(w.began) <= evaluation {
			n++
		}
	}
	return n
}

// holdUrgent checks that no owner's request and no kill switch waited.
func (w *world) holdUrgent(o outcome) {
	for of, asked := range w.owners {
		if s, left := w.left[of]; !left || s.at.Sub(asked) > max(o.owed, evaluation) {
			w.breaks("the owner of %s waited (%v)", of, w.sinceBegin(s.at, left))
		}
	}
	for of, on := range w.kills {
		if s, left := w.left[of]; !left || s.at.Sub(on) > max(o.owed, evaluation) {
			w.breaks("the kill switch of %s waited (%v)", of, w.sinceBegin(s.at, left))
		}
	}
}

func (w *world) sinceBegin(at time.Time, seen bool) string {
	if !seen {
		return "never"
	}
	return at.Sub(w.began).String()
}

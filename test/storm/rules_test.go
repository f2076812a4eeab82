// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"fmt"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// capPercent is how many of a Cluster's machines may start to leave within a window.
	capPercent = 5
	// evaluation is the time in which a manager has to do, or to show, what it has seen. What
	// the world does takes no time: a second is for what a reconciler waits for on purpose.
	evaluation = time.Second
)

// A ledger is what the API server has seen of machines, and the rules that it shows broken. It
// reads no record of ours but whether the hook is there that keeps a Machine from its drain.
type ledger struct {
	// active are the Machines that have not started to leave, by UID.
	active map[types.UID]string
	// starts are those of a Cluster's machines, in order, and left the first of each
	// ScheduledMachine since the story began.
	starts []start
	left   map[string]start
	// owners and kills are when owners have asked, and when kill switches were turned on.
	owners, kills map[string]time.Time
	// began is when the story did, and signals when each was first seen since.
	began   time.Time
	signals map[string]time.Time
	// end is when a window ends that was announced; zero is that none does.
	end time.Time
	// made are the objects that were made since the story began, and writes how many requests
	// of managers were carried out at the last instant of one, and when that was.
	made      []id
	lastWrite time.Time
	broken    []string
}

// A start is that of a departure.
type start struct {
	at     time.Time
	exempt bool
}

// count begins with what there is.
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

// see takes a change down.
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

// starting takes the start of a departure down, and holds it against the cap.
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
		if w.now.Sub(other.at) >= departure.Patience {
			break
		}
		lately++
		if w.now.Sub(other.at) >= departure.Window {
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
		w.breaks("at %s %d of %d machines have started to leave within %v, and %d may", w.now.Format(time.StampMilli), voluntary, machines, departure.Window, may)
	}
}

// exempt reports whether a machine may leave whatever the others do, by what a person or an
// owner has done.
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

// shown notes that people can see something.
func (w *world) shown(reason string) {
	if _, before := w.signals[reason]; !before {
		w.signals[reason] = w.now
	}
}

func (w *world) wrote(write) { w.lastWrite = w.now }

// breaks notes a rule that is broken; of many, the first few.
func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// An outcome is what a story must come to.
type outcome struct {
	// leaves are the machines that leave, and all others stay. some says which these are where
	// they are neither all nor half, and may who may do either.
	leaves    []int
	some, may func(*world) []int
	// shows is a reason of a condition, or an Event, that must be seen in the evaluation that
	// sees the input; empty where nothing is out of order.
	shows string
	// held is for how long nobody starts to leave who is not wanted at once. A wipe is one when
	// enough of it has been seen: of its first evaluation, as many start as the cap lets.
	held time.Duration
	// makes says that objects are made: machines come back.
	makes bool
	// owed is how long an owner may have to wait; zero is an evaluation.
	owed time.Duration
	// busy says that writes have no end.
	busy bool
}

func (o outcome) wipe() bool {
	return o.shows == v1alpha1.WipeQuarantinedEvent || o.shows == v1alpha1.WipeQuarantineReason
}

// stay notes that nobody may have left by now, and begins the story here.
func (w *world) stay() {
	if len(w.left) > 0 {
		w.breaks("%d have left who were to stay", len(w.left))
	}
	w.begin()
}

// hold holds a story against the rules, once it has been told.
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

// early is how many have left in the evaluation that saw the first of an input.
func (w *world) early() (n int) {
	for _, s := range w.left {
		if !s.exempt && s.at.Sub(w.began) <= evaluation {
			n++
		}
	}
	return n
}

// holdUrgent checks that no owner and no kill switch waited.
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

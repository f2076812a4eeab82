// SPDX-License-Identifier: Apache-2.0

package disaster

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// capMillionths is the fraction of a Cluster's machines that may start to leave in any 10 s, in millionths.
const capMillionths = 50_000

// A chapter is the record of one disaster.
type chapter struct {
	name     string
	from, to time.Time
	// shows is the signal that people saw, and after how long. at is the number of departures that had started by then.
	shows string
	seen  time.Duration
	at    int
	// requests are the owners' requests during the disaster, quiet the ones in the quiet fleet before it.
	requests, quiet []request
}

// TestTheRailsHoldAmongRealParts runs one disaster after the other on one fleet, and undoes each. The judge rules at
// the end, when the managers have ended.
func TestTheRailsHoldAmongRealParts(t *testing.T) {
	w := newWorld(t, *machines)
	var chapters []chapter
	for _, in := range inputs {
		if !t.Run(in.name, func(t *testing.T) { chapters = append(chapters, w.in(t).play(in)) }) {
			break // The next disaster would start from a broken fleet.
		}
	}
	w.stopReplicas()
	w.judge(chapters)
}

// play runs a disaster and undoes it, until the fleet is as before.
func (w *world) play(in input) chapter {
	w.Helper()
	w.startReplicas()
	w.rejoin()
	w.warmUp()
	w.requests = nil
	for range 2 {
		w.begin()
		w.mistake()
		w.requestMachine(w.names)
		w.rejoin()
	}
	c := chapter{name: in.name, from: time.Now(), shows: in.shows, quiet: w.requests}
	w.begin()
	w.requests = nil
	uids := w.uids()
	in.run(w)
	seen := w.sees(in.shows)
	c.seen, c.at, c.requests = seen.at.Sub(w.wrong), seen.started, w.requests
	if c.at > w.atOnce() {
		w.Errorf("%d machines had started to leave before people saw %s, and %d may at once", c.at, in.shows, w.atOnce())
	}
	if in.undo != nil {
		in.undo(w)
		w.undone(uids)
	}
	w.rejoin()
	c.to = time.Now()
	return c
}

// undone checks that no further machine leaves once the managers have observed the undo, and that machines that waited
// are unchanged.
func (w *world) undone(uids map[string]types.UID) {
	w.Helper()
	w.calm()
	calm, left := time.Now(), w.left()
	w.rejoin()
	if late := w.startsAfter(calm); len(late) > 0 {
		w.Errorf("they leave although they are wanted again: %v", late)
	}
	kept := 0
	for name, uid := range uids {
		if !left[name] {
			w.wantKept(name, uid)
			kept++
		}
	}
	w.Logf("%d have left, %d have kept their Nodes", len(left), kept)
}

// judge runs the judge, and prints the measurements.
func (w *world) judge(chapters []chapter) {
	w.Helper()
	figures := newTally()
	w.history.mu.Lock()
	killed, last := slices.Clone(w.ended), slices.Clone(w.last)
	w.history.mu.Unlock()
	for _, said := range last {
		w.Logf("started again: %s", said)
	}
	for _, r := range w.replicas {
		killed = append(killed, r.Killed()...)
	}
	rules := append(judge.Default(), judge.Cap(capMillionths), judge.FleetCap(capMillionths), judge.Wipe(), judge.Lines(true, killed...))
	ruling, err := shared.Ruling(append([]string{auditLog()}, w.others...), append(slices.Clone(rules), figures)...)
	w.must(err)
	w.must(ruling.Print(os.Stdout, rules))
	for _, v := range ruling.Breaks {
		w.Errorf("%s: %s\n%s", chapterAt(chapters, v.At), v, w.lines(v))
	}
	if ruling.Judged["cap"] == 0 {
		w.Error("nobody left: the cap has shown nothing")
	}
	var loud, quiet []wait
	var loudPeers, quietPeers []time.Duration
	for _, c := range chapters {
		in, out := w.waits(figures, c.requests), w.waits(figures, c.quiet)
		loud, quiet = append(loud, in...), append(quiet, out...)
		loudPeers, quietPeers = append(loudPeers, peers(c.requests)...), append(quietPeers, peers(c.quiet)...)
		all, most := figures.most(c.from, c.to)
		w.Logf("%-32s %s after %v, when %d had started; %d started to leave, at most %d in 10 s; owners: %v; quiet: %v",
			c.name, c.shows, c.seen.Round(time.Millisecond), c.at, all, most, alls(in), alls(out))
		for _, a := range c.requests {
			w.Logf("%-32s%s; five requests of somebody else %v", "", figures.steps(a), a.peer.Round(time.Millisecond))
		}
	}
	w.compare("owners", alls(loud), alls(quiet))
	w.compare("owners, without the API server's answers", ours(loud), ours(quiet))
	w.compare("five requests of somebody else at the same time", loudPeers, quietPeers)
}

// lines returns lines of the managers' audit log about the machine and the time of a verdict.
func (w *world) lines(v judge.Verdict) (found string) {
	w.Helper()
	text, err := os.ReadFile(auditLog())
	w.must(err)
	for line := range strings.Lines(string(text)) {
		var l struct{ Time time.Time }
		machine := `"` + namespace + "/" + box.FindString(v.String()) + `"`
		if strings.Contains(line, machine) && json.Unmarshal([]byte(line), &l) == nil && l.Time.Sub(v.At).Abs() < 2*time.Minute {
			found += line
		}
	}
	return found
}

// box matches the name of a ScheduledMachine.
var box = regexp.MustCompile(`box-\d+`)

// compare prints how much longer something took in disasters than in the quiet fleet.
func (w *world) compare(what string, loud, quiet []time.Duration) {
	w.Helper()
	a, b := spreadOf(loud), spreadOf(quiet)
	w.Logf("%s in disasters: %v", what, a)
	w.Logf("%s in the quiet fleet: %v", what, b)
	if b.n > 0 {
		w.Logf("%s: ratio of the medians %.2f, of the p99s %.2f", what, float64(a.median)/float64(b.median), float64(a.p99)/float64(b.p99))
	}
}

func (w *world) waits(figures *tally, requests []request) (waits []wait) {
	w.Helper()
	for _, a := range requests {
		d, err := figures.waited(a)
		if err != nil {
			w.Error(err)
			continue
		}
		waits = append(waits, wait{d.all.Round(time.Millisecond), d.ours.Round(time.Millisecond)})
	}
	return waits
}

func alls(waits []wait) (all []time.Duration) {
	for _, o := range waits {
		all = append(all, o.all)
	}
	return all
}

func ours(waits []wait) (ours []time.Duration) {
	for _, o := range waits {
		ours = append(ours, o.ours)
	}
	return ours
}

// chapterAt returns the disaster during which something happened.
func chapterAt(chapters []chapter, at time.Time) string {
	for _, c := range chapters {
		if !at.Before(c.from) && !at.After(c.to) {
			return c.name
		}
	}
	return "between disasters"
}

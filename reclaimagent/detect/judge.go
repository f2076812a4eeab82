// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
)

// maxSeen bounds what is remembered between two walks, which forget the dead:
// forgetting the living means announcing them again, which is harmless.
const maxSeen = 4096

// identity tells a process from others that had or will have its pid.
type identity struct {
	pid   int
	start uint64
}

// A judge decides about processes. However a process came to its notice, the
// decision is the same.
type judge struct {
	table    *process.Table
	matcher  *match.Matcher
	metrics  *metrics.Set
	emit     func(Match)
	log      *slog.Logger
	detector Mode
	// complained says that an unreadable process was logged in this run, and
	// hanging that some cannot be read without waiting.
	complained, hanging bool
	// hidden says that a program started whose process exists and cannot be read, and
	// denied counts arguments that may not be read.
	hidden bool
	denied int
	// visible is why the processes of other users cannot be read, nil if they can.
	visible error

	scan match.Scan
	// event is what announced the process at hand, nil during a walk.
	event *procevents.Event
	// seen holds what was emitted, with the walk that last met it.
	seen  map[identity]uint64
	round uint64
	// visit is j.look, made once: making a method value allocates.
	visit process.Visit
}

func (d *Detector) judge(t *process.Table, m *match.Matcher, emit func(Match)) *judge {
	j := &judge{table: t, matcher: m, metrics: d.o.Metrics, log: d.o.Log, emit: emit, seen: map[identity]uint64{}}
	j.visit = j.look
	return j
}

// guarded runs work, which looks at processes, in a goroutine of its own. If the
// arguments of a process hang that goroutine, it is left behind, and work begins
// again in another one, with that process put aside. Work must be able to go on
// where the first one was.
func (j *judge) guarded(work func() error) error {
	for {
		ended := make(chan error, 1)
		go func() { ended <- work() }()
		select {
		case err := <-ended:
			return err
		case <-j.table.Hung():
			j.table, j.event = j.table.Succeed(), nil
			j.metrics.Hangs.Add(1)
			j.reckon()
		}
	}
}

// reckon says how many processes are aside.
func (j *judge) reckon() {
	n := j.table.Aside().Len()
	j.metrics.Hung.Store(int64(n))
	hanging := n > 0
	switch {
	case hanging == j.hanging:
		return
	case hanging:
		j.log.Warn("Arguments of a process cannot be read without waiting; it is matched by its name alone", "pids", j.table.Aside().PIDs())
	default:
		j.log.Info("Arguments of all processes can be read again")
	}
	j.hanging = hanging
}

// pass looks at all processes, and forgets those that it did not meet.
func (j *judge) pass(walk func(*process.Table, process.Visit) (process.Census, error)) error {
	j.round++
	j.denied = 0
	j.table.Aside().Back() // the walk meets them
	j.reckon()
	visible := j.table.CheckVisibility()
	census, err := walk(j.table, j.visit)
	j.metrics.Vanished.Add(uint64(census.Gone)) //nolint:gosec // a count
	if err != nil {
		return err
	}
	if denied := census.Denied + j.denied; visible == nil && denied > 0 {
		visible = fmt.Errorf("%w: permission to read is denied for %d of %d processes", process.ErrHidden, denied, census.Processes+census.Denied)
	}
	j.setVisibility(visible)
	for id, round := range j.seen {
		if round != j.round {
			delete(j.seen, id)
		}
	}
	return nil
}

// begin sets the detector that is in use from now on. Only a pass proves that all processes are
// readable: reads of single processes may have been denied.
func (j *judge) begin(detector Mode) {
	j.detector = detector
	if err := j.table.CheckVisibility(); err != nil {
		j.setVisibility(err)
	}
	j.metrics.SetDetector(string(detector))
}

// setVisibility records whether the processes of other users are readable, and logs a change.
func (j *judge) setVisibility(visible error) {
	j.visible = visible
	blind := visible != nil
	switch {
	case !j.metrics.SetBlind(blind):
	case blind:
		j.log.Error("Cannot notice the owner's programs", "err", visible)
	default:
		j.log.Info("The processes of all users can be read again")
	}
}

// hear looks at the process that the kernel announces. That it is gone by now is
// the common case for those that live a moment.
func (j *judge) hear(e *procevents.Event) {
	j.event = e
	switch e.Kind {
	case procevents.Exec:
		j.metrics.Execs.Add(1)
		j.lookAtStarted(e.TGID)
	case procevents.Comm:
		j.metrics.Renames.Add(1)
		j.renamed(e)
	case procevents.Ack, procevents.Other:
	}
	j.event = nil
}

// lookAtStarted looks at a process whose program has started. That it is gone by now is
// common. One that exists and has no files is hidden.
func (j *judge) lookAtStarted(pid int) {
	err := j.table.LookAtStarted(pid, j.visit)
	if errors.Is(err, fs.ErrNotExist) && j.table.Alive(pid) {
		if err = j.table.LookAtStarted(pid, j.visit); err != nil { // The pid may have been reused since.
			err = fs.ErrPermission
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission):
		j.metrics.Hidden.Add(1)
		j.hidden = true
	default:
		j.metrics.Vanished.Add(1)
	}
}

// again looks at the processes that were put aside and can be read by now.
func (j *judge) again() {
	for _, pid := range j.table.Aside().Back() {
		if err := j.table.Look(pid, j.visit); err != nil {
			j.metrics.Vanished.Add(1)
		}
	}
	j.reckon()
}

// renamed decides by the name in the event: /proc may have the next one already.
func (j *judge) renamed(e *procevents.Event) {
	j.metrics.Decisions.Add(1)
	if hit, ok := j.matcher.Comm(e.Comm()); ok && e.TGID != j.table.Self() {
		j.confirm(e.TGID, hit)
	}
}

// look decides about one process: by its name and then by its arguments.
func (j *judge) look(p *process.Process) (clean bool) {
	j.metrics.Decisions.Add(1)
	hit, ok := j.matcher.Comm(p.Comm())
	if !ok {
		j.scan = j.matcher.Scan()
		if err := p.Argv(&j.scan); err != nil {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				j.metrics.Vanished.Add(1)
			case errors.Is(err, fs.ErrPermission):
				j.denied++
			}
			return false
		}
		hit, ok = j.scan.Hit()
	}
	if !ok {
		return true
	}
	j.confirm(p.PID(), hit)
	return false
}

// confirm emits a match, once, unless it belongs to a pod or a container or is
// gone, in which case nobody can say whose it was.
func (j *judge) confirm(pid int, hit match.Hit) {
	standing, err := j.table.Standing(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		j.metrics.Vanished.Add(1)
		return
	case err != nil:
		j.complain(pid, err)
		return
	case standing.Contained:
		j.metrics.Excluded.Add(1)
		return
	}
	id := identity{pid: pid, start: standing.Start}
	_, announced := j.seen[id]
	if !announced && hit.Source == match.Argv {
		var ok bool
		if hit, ok = j.matchIgnoringKubeletPaths(pid, hit); !ok {
			j.metrics.Excluded.Add(1)
			return
		}
	}
	if announced || len(j.seen) < maxSeen {
		j.seen[id] = j.round
	}
	if announced {
		return
	}
	m := Match{PID: pid, Start: standing.Start, Hit: hit, Detector: j.detector}
	if j.event != nil {
		m.Latency = j.event.Age()
		j.metrics.MatchLatency.Store(int64(m.Latency))
	}
	j.metrics.Matches.Add(1)
	j.emit(m)
}

// matchIgnoringKubeletPaths matches the arguments again without those that contain a path below a
// kubelet directory. Pods choose such paths, for example in volume names.
func (j *judge) matchIgnoringKubeletPaths(pid int, hit match.Hit) (match.Hit, bool) {
	var a arguments
	err := j.table.Look(pid, func(p *process.Process) bool {
		a.err = p.Argv(&a)
		return false
	})
	if err = errors.Join(err, a.err); err != nil || len(a.all) > maxArguments {
		return hit, !errors.Is(err, fs.ErrNotExist)
	}
	return j.matcher.Match(nil, process.WithoutKubelets(a.all))
}

// arguments collects the arguments of a process, and maxArguments is how much of them is
// worth the memory: longer ones are the owner's, whatever they name.
type arguments struct {
	all []byte
	err error
}

const maxArguments = 1 << 20

// Feed implements [process.Feeder].
func (a *arguments) Feed(piece []byte) {
	if len(a.all) <= maxArguments {
		a.all = append(a.all, piece...)
	}
}

// complain says that a process matches but cannot be told from a workload's. It
// does so once: the next poll meets the same process.
func (j *judge) complain(pid int, err error) {
	if !j.complained {
		j.complained = true
		j.log.Error("Ignoring a match of unknown standing", "pid", pid, "err", err)
	}
}

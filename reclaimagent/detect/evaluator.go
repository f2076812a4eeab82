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

// maxSeen bounds the list of reported processes. A scan removes ended processes. A live process beyond the bound is
// reported again, which is harmless.
const maxSeen = 4096

// identity distinguishes a process from others with the same PID.
type identity struct {
	pid   int
	start uint64
}

// evaluator evaluates processes and emits matches. Both detectors use it.
type evaluator struct {
	table    *process.Table
	matcher  *match.Matcher
	metrics  *metrics.Set
	emit     func(Match)
	log      *slog.Logger
	detector Mode
	// unreadableLogged means that an unreadable process was logged in this run. hanging means that the arguments of
	// some process block readers.
	unreadableLogged, hanging bool
	// hidden means that a started program's process exists and cannot be read. denied counts arguments that could not
	// be read because of permissions.
	hidden bool
	denied int
	// visible is why the processes of other users cannot be read, nil if they can.
	visible error

	scan match.Scan
	// event is the event of the current process, nil during a scan.
	event *procevents.Event
	// seen holds the emitted processes, each with the round of the last scan that found it.
	seen  map[identity]uint64
	round uint64
	// visit is j.evaluate, stored because a method value allocates.
	visit process.Visit
}

// newEvaluator opens the table of processes. The caller must close it.
func (d *Detector) newEvaluator(m *match.Matcher, emit func(Match)) (*evaluator, error) {
	table, err := d.o.Open()
	if err != nil {
		return nil, err
	}
	table.Share(&d.hungProcesses)
	j := &evaluator{table: table, matcher: m, metrics: d.o.Metrics, log: d.o.Log, emit: emit, seen: map[identity]uint64{}}
	j.visit = j.evaluate
	return j, nil
}

// guarded runs work, which reads processes, in a separate goroutine. If the arguments of a process block that
// goroutine, guarded abandons it, and runs work again in another goroutine, without that process. So work must be able
// to continue where the first run stopped.
func (j *evaluator) guarded(work func() error) error {
	for {
		ended := make(chan error, 1)
		go func() { ended <- work() }()
		select {
		case err := <-ended:
			return err
		case <-j.table.Hung():
			j.table, j.event = j.table.TakeOver(), nil
			j.metrics.Hangs.Add(1)
			j.updateHung()
		}
	}
}

// updateHung updates the metric and the log about processes whose arguments block readers.
func (j *evaluator) updateHung() {
	n := j.table.HungProcesses().Len()
	j.metrics.Hung.Store(int64(n))
	hanging := n > 0
	switch {
	case hanging == j.hanging:
		return
	case hanging:
		j.log.Warn("Arguments of a process cannot be read without waiting; it is matched by its name alone", "pids", j.table.HungProcesses().PIDs())
	default:
		j.log.Info("Arguments of all processes can be read again")
	}
	j.hanging = hanging
}

// scanAll scans all processes, and removes the ones that it did not find from seen.
func (j *evaluator) scanAll(walk func(*process.Table, process.Visit) (process.WalkResult, error)) error {
	j.round++
	j.denied = 0
	j.table.HungProcesses().Recovered() // The scan visits these processes.
	j.updateHung()
	visible := j.table.CheckVisibility()
	result, err := walk(j.table, j.visit)
	j.metrics.Vanished.Add(uint64(result.Gone)) //nolint:gosec // a count
	if err != nil {
		return err
	}
	if denied := result.Denied + j.denied; visible == nil && denied > 0 {
		visible = fmt.Errorf("%w: permission to read is denied for %d of %d processes", process.ErrHidden, denied, result.Processes+result.Denied)
	}
	j.setVisibility(visible)
	for id, round := range j.seen {
		if round != j.round {
			delete(j.seen, id)
		}
	}
	return nil
}

// begin sets the detector in use. Only a scan can prove that all processes are readable, because single reads may have
// been denied.
func (j *evaluator) begin(detector Mode) {
	j.detector = detector
	if err := j.table.CheckVisibility(); err != nil {
		j.setVisibility(err)
	}
	j.metrics.SetDetector(string(detector))
}

// setVisibility records whether the processes of other users are readable, and logs a change.
func (j *evaluator) setVisibility(visible error) {
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

// handleEvent handles an event of the kernel. Processes that live only briefly have often ended by then.
func (j *evaluator) handleEvent(e *procevents.Event) {
	j.event = e
	switch e.Kind {
	case procevents.Exec:
		j.metrics.Execs.Add(1)
		j.visitStarted(e.TGID)
	case procevents.Comm:
		j.metrics.Renames.Add(1)
		j.renamed(e)
	case procevents.Ack, procevents.Other:
	}
	j.event = nil
}

// visitStarted visits a process that has started a program. Often, it has ended by then. A process that exists without
// readable files is hidden.
func (j *evaluator) visitStarted(pid int) {
	err := j.table.VisitStarted(pid, j.visit)
	if errors.Is(err, fs.ErrNotExist) && j.table.Alive(pid) {
		if err = j.table.VisitStarted(pid, j.visit); err != nil { // Another process may have the PID now.
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

// visitRecovered visits the processes whose arguments can be read again.
func (j *evaluator) visitRecovered() {
	for _, pid := range j.table.HungProcesses().Recovered() {
		if err := j.table.VisitPID(pid, j.visit); err != nil {
			j.metrics.Vanished.Add(1)
		}
	}
	j.updateHung()
}

// renamed uses the name in the event, because /proc may already have the next name.
func (j *evaluator) renamed(e *procevents.Event) {
	j.metrics.Decisions.Add(1)
	if hit, ok := j.matcher.Comm(e.Comm()); ok && e.TGID != j.table.Self() {
		j.confirm(e.TGID, hit)
	}
}

// evaluate evaluates one process: first its name, then its arguments.
func (j *evaluator) evaluate(p *process.Process) (clean bool) {
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

// confirm emits a match once. It skips a process of a pod or a container, one that has ended, and one whose Info
// cannot be read.
func (j *evaluator) confirm(pid int, hit match.Hit) {
	info, err := j.table.Info(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		j.metrics.Vanished.Add(1)
		return
	case err != nil:
		j.logUnreadable(pid, err)
		return
	case info.Contained:
		j.metrics.Excluded.Add(1)
		return
	}
	id := identity{pid: pid, start: info.Start}
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
	m := Match{PID: pid, Hit: hit, Detector: j.detector}
	if j.event != nil {
		m.Latency = j.event.Age()
		j.metrics.MatchLatency.Store(int64(m.Latency))
	}
	j.metrics.Matches.Add(1)
	j.emit(m)
}

// matchIgnoringKubeletPaths repeats the match without arguments that contain a path below a kubelet directory. Pods
// choose such paths, for example in volume names.
func (j *evaluator) matchIgnoringKubeletPaths(pid int, hit match.Hit) (match.Hit, bool) {
	var all arguments
	var argvErr error
	err := j.table.VisitPID(pid, func(p *process.Process) bool {
		argvErr = p.Argv(&all)
		return false
	})
	if err = errors.Join(err, argvErr); err != nil || len(all) > maxArguments {
		return hit, !errors.Is(err, fs.ErrNotExist)
	}
	return j.matcher.Match(nil, process.WithoutKubelets(all))
}

// arguments collects the arguments of a process up to maxArguments bytes. Longer arguments count as the owner's without
// the check for kubelet paths.
type arguments []byte

const maxArguments = 1 << 20

// Feed implements [process.Feeder].
func (a *arguments) Feed(piece []byte) {
	if len(*a) <= maxArguments {
		*a = append(*a, piece...)
	}
}

// logUnreadable logs a match of a process whose Info cannot be read. It logs only once, because the next poll finds the
// same process.
func (j *evaluator) logUnreadable(pid int, err error) {
	if !j.unreadableLogged {
		j.unreadableLogged = true
		j.log.Error("Ignoring a matching process: cannot read whether it runs in a container", "pid", pid, "err", err)
	}
}

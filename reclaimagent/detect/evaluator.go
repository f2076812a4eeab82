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
	// hiddenErr is why the processes of other users cannot be read, nil if they can.
	hiddenErr error

	scan match.Scan
	// event is the event of the current process, nil during a scan.
	event *procevents.Event
	// seen holds the emitted processes, each with the round of the last scan that found it.
	seen  map[identity]uint64
	round uint64
	// visit is v.evaluate, stored because a method value allocates.
	visit process.Visit
}

// newEvaluator opens the table of processes. The caller must close it.
func (d *Detector) newEvaluator(m *match.Matcher, emit func(Match)) (*evaluator, error) {
	table, err := d.o.Open()
	if err != nil {
		return nil, err
	}
	table.Share(&d.hungProcesses)
	v := &evaluator{table: table, matcher: m, metrics: d.o.Metrics, log: d.o.Log, emit: emit, seen: map[identity]uint64{}}
	v.visit = v.evaluate
	return v, nil
}

// guarded runs work, which reads processes, in a separate goroutine. If the arguments of a process block that
// goroutine, guarded abandons it, and runs work again in another goroutine, without that process. So work must be able
// to continue where the first run stopped.
func (v *evaluator) guarded(work func() error) error {
	for {
		ended := make(chan error, 1)
		go func() { ended <- work() }()
		select {
		case err := <-ended:
			return err
		case <-v.table.Hung():
			v.table, v.event = v.table.TakeOver(), nil
			v.metrics.Hangs.Add(1)
			v.updateHung()
		}
	}
}

// updateHung updates the metric and the log about processes whose arguments block readers.
func (v *evaluator) updateHung() {
	n := v.table.HungProcesses().Len()
	v.metrics.Hung.Store(int64(n))
	hanging := n > 0
	switch {
	case hanging == v.hanging:
		return
	case hanging:
		v.log.Warn("Arguments of a process cannot be read without waiting; it is matched by its name alone", "pids", v.table.HungProcesses().PIDs())
	default:
		v.log.Info("Arguments of all processes can be read again")
	}
	v.hanging = hanging
}

// scanAll scans all processes, and removes the ones that it did not find from seen.
func (v *evaluator) scanAll(walk func(*process.Table, process.Visit) (process.WalkResult, error)) error {
	v.round++
	v.denied = 0
	v.table.HungProcesses().Recovered() // The scan visits these processes.
	v.updateHung()
	hiddenErr := v.table.CheckVisibility()
	result, err := walk(v.table, v.visit)
	v.metrics.Vanished.Add(uint64(result.Gone)) //nolint:gosec // a count
	if err != nil {
		return err
	}
	if denied := result.Denied + v.denied; hiddenErr == nil && denied > 0 {
		hiddenErr = fmt.Errorf("%w: permission to read is denied for %d of %d processes", process.ErrHidden, denied, result.Processes+result.Denied)
	}
	v.setVisibility(hiddenErr)
	for id, round := range v.seen {
		if round != v.round {
			delete(v.seen, id)
		}
	}
	return nil
}

// begin sets the detector in use. Only a scan can prove that all processes are readable, because single reads may have
// been denied.
func (v *evaluator) begin(detector Mode) {
	v.detector = detector
	if err := v.table.CheckVisibility(); err != nil {
		v.setVisibility(err)
	}
	v.metrics.SetDetector(string(detector))
}

// setVisibility records whether the processes of other users are readable, and logs a change.
func (v *evaluator) setVisibility(hiddenErr error) {
	v.hiddenErr = hiddenErr
	blind := hiddenErr != nil
	switch {
	case !v.metrics.SetBlind(blind):
	case blind:
		v.log.Error("Cannot notice the owner's programs", "err", hiddenErr)
	default:
		v.log.Info("The processes of all users can be read again")
	}
}

// handleEvent handles an event of the kernel. Processes that live only briefly have often ended by then.
func (v *evaluator) handleEvent(e *procevents.Event) {
	v.event = e
	switch e.Kind {
	case procevents.Exec:
		v.metrics.Execs.Add(1)
		v.visitStarted(e.TGID)
	case procevents.Comm:
		v.metrics.Renames.Add(1)
		v.renamed(e)
	case procevents.Ack, procevents.Other:
	}
	v.event = nil
}

// visitStarted visits a process that has started a program. Often, it has ended by then. A process that exists without
// readable files is hidden.
func (v *evaluator) visitStarted(pid int) {
	err := v.table.VisitStarted(pid, v.visit)
	if errors.Is(err, fs.ErrNotExist) && v.table.Alive(pid) {
		if err = v.table.VisitStarted(pid, v.visit); err != nil { // Another process may have the PID now.
			err = fs.ErrPermission
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission):
		v.metrics.Hidden.Add(1)
		v.hidden = true
	default:
		v.metrics.Vanished.Add(1)
	}
}

// visitRecovered visits the processes whose arguments can be read again.
func (v *evaluator) visitRecovered() {
	for _, pid := range v.table.HungProcesses().Recovered() {
		if err := v.table.VisitPID(pid, v.visit); err != nil {
			v.metrics.Vanished.Add(1)
		}
	}
	v.updateHung()
}

// renamed uses the name in the event, because /proc may already have the next name.
func (v *evaluator) renamed(e *procevents.Event) {
	v.metrics.Decisions.Add(1)
	if hit, ok := v.matcher.Comm(e.Comm()); ok && e.TGID != v.table.Self() {
		v.confirm(e.TGID, hit)
	}
}

// evaluate evaluates one process: first its name, then its arguments.
func (v *evaluator) evaluate(p *process.Process) (clean bool) {
	v.metrics.Decisions.Add(1)
	hit, ok := v.matcher.Comm(p.Comm())
	if !ok {
		v.scan = v.matcher.Scan()
		if err := p.Argv(&v.scan); err != nil {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				v.metrics.Vanished.Add(1)
			case errors.Is(err, fs.ErrPermission):
				v.denied++
			}
			return false
		}
		hit, ok = v.scan.Hit()
	}
	if !ok {
		return true
	}
	v.confirm(p.PID(), hit)
	return false
}

// confirm emits a match once. It skips a process of a pod or a container, one that has ended, and one whose Info
// cannot be read.
func (v *evaluator) confirm(pid int, hit match.Hit) {
	info, err := v.table.Info(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.metrics.Vanished.Add(1)
		return
	case err != nil:
		v.logUnreadable(pid, err)
		return
	case info.Contained:
		v.metrics.Excluded.Add(1)
		return
	}
	id := identity{pid: pid, start: info.Start}
	_, announced := v.seen[id]
	if !announced && hit.Source == match.Argv {
		var ok bool
		if hit, ok = v.matchIgnoringKubeletPaths(pid, hit); !ok {
			v.metrics.Excluded.Add(1)
			return
		}
	}
	if announced || len(v.seen) < maxSeen {
		v.seen[id] = v.round
	}
	if announced {
		return
	}
	m := Match{PID: pid, Hit: hit, Detector: v.detector}
	if v.event != nil {
		m.Latency = v.event.Age()
		v.metrics.MatchLatency.Store(int64(m.Latency))
	}
	v.metrics.Matches.Add(1)
	v.emit(m)
}

// matchIgnoringKubeletPaths repeats the match without arguments that contain a path below a kubelet directory. Pods
// choose such paths, for example in volume names.
func (v *evaluator) matchIgnoringKubeletPaths(pid int, hit match.Hit) (match.Hit, bool) {
	var all arguments
	var argvErr error
	err := v.table.VisitPID(pid, func(p *process.Process) bool {
		argvErr = p.Argv(&all)
		return false
	})
	if err = errors.Join(err, argvErr); err != nil || len(all) > maxArguments {
		return hit, !errors.Is(err, fs.ErrNotExist)
	}
	return v.matcher.Match(nil, process.WithoutKubelets(all))
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
func (v *evaluator) logUnreadable(pid int, err error) {
	if !v.unreadableLogged {
		v.unreadableLogged = true
		v.log.Error("Ignoring a matching process: cannot read whether it runs in a container", "pid", pid, "err", err)
	}
}

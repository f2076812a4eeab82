// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// reclaimed is one run. All times are of this machine's clock.
type reclaimed struct {
	// exec is the last instant before the owner's program.
	exec time.Time
	// decided is from the agent's log, in whole milliseconds.
	decided time.Time
	// annotated, marked and deleted are when the API server had finished the writes to Node, ScheduledMachine and
	// Machine.
	annotated, marked, deleted time.Time
	// freed is when the API server had finished the deletion of the infrastructure.
	freed time.Time
	// watched is when a watch showed the Machine's deletionTimestamp.
	watched time.Time
	// writes is the number of the manager's writes between annotation and deletion, including the deletion. besides is
	// the number of Events and status writes in that time.
	writes, besides int
}

func total(r reclaimed) time.Duration { return r.deleted.Sub(r.exec) }

// stages are the parts of total, and the delay of a watch.
var stages = []struct {
	name string
	of   func(reclaimed) time.Duration
}{
	{"exec → agent's decision (log, ±1 ms)", func(r reclaimed) time.Duration { return r.decided.Sub(r.exec) }},
	{"exec → Node annotated", func(r reclaimed) time.Duration { return r.annotated.Sub(r.exec) }},
	{"Node annotated → ScheduledMachine marked", func(r reclaimed) time.Duration { return r.marked.Sub(r.annotated) }},
	{"ScheduledMachine marked → Machine deleted", func(r reclaimed) time.Duration { return r.deleted.Sub(r.marked) }},
	{"exec → watch tells of the deletion", func(r reclaimed) time.Duration { return r.watched.Sub(r.exec) }},
}

// once reclaims the next machine.
func (r *reclaimBench) once(ctx context.Context, detector string) (reclaimed, error) {
	name, err := r.next(ctx)
	if err != nil {
		return reclaimed{}, err
	}
	return r.reclaim(ctx, name, detector)
}

// reclaim starts the owner's program on a machine, and waits until the machine is gone.
func (r *reclaimBench) reclaim(ctx context.Context, name, detector string) (run reclaimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	node := machineOf(name)
	agent, err := r.lab.StartAgent(ctx, r.lab.workload, system.AgentOptions{
		Node: node, Patterns: []string{r.pattern}, MachineIDPath: r.identity, Args: []string{"--detector=" + detector},
	})
	if err != nil {
		return run, err
	}
	defer func() { _ = agent.Kill() }()
	// Polls come every 250 ms: start at a random time between two.
	if err := pause(ctx, 500*time.Millisecond+time.Duration(r.random.Int64N(int64(250*time.Millisecond)))); err != nil {
		return run, err
	}
	for _, log := range []*auditLog{r.lab.management, r.lab.nodes} {
		if _, err := log.next(); err != nil {
			return run, err
		}
	}
	if run, err = r.launch(ctx, name); err != nil {
		return run, err
	}
	if err := run.readAgent(agent); err != nil {
		return run, err
	}
	return run, run.readAudit(r.lab, name)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d): //nolint:forbidigo // a benchmark has to wait
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// launch starts the owner's program, and ends it when the machine is gone.
func (r *reclaimBench) launch(ctx context.Context, name string) (run reclaimed, err error) {
	cmd := exec.CommandContext(ctx, r.launcher) //nolint:gosec // a program of ours
	cmd.Env, cmd.Stderr = []string{"TARGET=" + r.target}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return run, err
	}
	if err := cmd.Start(); err != nil {
		return run, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return run, fmt.Errorf("starting the owner's program: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return run, err
	}
	run.exec = time.Unix(0, ns)
	err = r.until(ctx, func() error {
		if at, ok := r.leaving[machineOf(name)]; ok {
			run.watched = at
			return nil
		}
		return errors.New("the Machine is not being deleted")
	})
	if err != nil {
		return run, err
	}
	return run, r.settle(ctx, []string{name}, v1alpha1.PhaseDisabled)
}

func (r *reclaimed) readAgent(agent *plane.Process) error {
	for _, line := range system.ParseLog(agent.LogTail(100) + "\n") {
		if line.Message() == "Process matches" && !line.Time().Before(r.exec.Truncate(time.Millisecond)) {
			r.decided = line.Time()
			return nil
		}
	}
	return fmt.Errorf("the agent's log tells of no match: %s", agent.LogTail(5))
}

// readAudit reads the times of the writes from the API servers' audit logs.
func (r *reclaimed) readAudit(l *lab, name string) error {
	nodes, err := l.nodes.next()
	if err != nil {
		return err
	}
	r.annotated = first(nodes, "patch nodes", machineOf(name))
	requests, err := l.management.next()
	if err != nil {
		return err
	}
	r.marked = first(requests, "patch scheduledmachines", name)
	r.deleted = first(requests, "delete machines", machineOf(name))
	r.freed = first(requests, "delete planemachines", name+"-infra")
	if r.deleted.IsZero() { // The Machine was being drained already.
		r.deleted = r.freed
	}
	if r.annotated.IsZero() || r.marked.IsZero() || r.freed.IsZero() {
		return fmt.Errorf("the API servers' records lack a step of %s: %+v", name, *r)
	}
	for _, q := range requests {
		switch {
		case !q.ours(), !q.isWrite(), q.StageTimestamp.Before(r.annotated), q.StageTimestamp.After(r.deleted):
		case q.lifecycle():
			r.writes++
		default:
			r.besides++
		}
	}
	return nil
}

// first is when the first request of that kind was finished.
func first(requests []request, what, name string) time.Time {
	for _, q := range requests {
		if q.what() == what && q.ObjectRef.Name == name && q.accepted() {
			return q.StageTimestamp
		}
	}
	return time.Time{}
}

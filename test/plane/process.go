// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// stopGrace is how long a process may take to end after SIGTERM. API servers wait for open watches, which a test does
// not need.
const stopGrace = 3 * time.Second

// errNotRunning means that a process has not been started or has ended.
var errNotRunning = errors.New("not running")

// Process is one program of the plane. It is safe for concurrent use.
type Process struct {
	name, path, dir string
	args, env       []string
	ready           func(context.Context) error
	// grace overrides stopGrace if it is longer.
	grace time.Duration

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
	// killed are the times of Kill.
	killed []time.Time
}

// NewProcess returns a process that needs no plane. It runs in dir, which also has its log. Start runs it. ready may be
// nil.
func NewProcess(dir, name, path string, args, env []string, ready func(context.Context) error) *Process {
	return &Process{name: name, path: path, dir: dir, args: args, env: env, ready: ready}
}

// Name returns the name of the program, as in its log file.
func (p *Process) Name() string { return p.name }

// LogPath returns the file with the output of all runs of the process.
func (p *Process) LogPath() string { return filepath.Join(p.dir, p.name+".log") }

// Flag returns the value of one of the program's flags, empty if it is not given.
func (p *Process) Flag(name string) string {
	for _, arg := range p.args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// PID returns the process ID, or 0 if it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	select {
	case <-p.ended:
		return 0
	default:
		return p.cmd.Process.Pid
	}
}

// AddArgs appends command line arguments for the next Start.
func (p *Process) AddArgs(args ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.args = append(p.args, args...)
}

// Start runs the program and returns when it is ready. It is an error if the process runs.
func (p *Process) Start(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	if err := p.WaitReady(ctx); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

func (p *Process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		select {
		case <-p.ended:
		default:
			return errors.New("already running")
		}
	}
	log, err := os.OpenFile(p.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.path, p.args...) //nolint:gosec,noctx // the programs of the plane; they outlive the context of their start
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, p.dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = childAttributes()
	if err := startPinned(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(ended)
	}()
	return nil
}

// WaitReady returns when the process is ready. If the process ends, the error contains the end of its log.
func (p *Process) WaitReady(ctx context.Context) error {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended == nil {
		return fmt.Errorf("%s: %w", p.name, errNotRunning)
	}
	if p.ready == nil {
		return nil
	}
	return await.Poll(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, fmt.Errorf("%s ended while starting: %w\n%s", p.name, p.exitError(), p.LogTail(20))
		default:
		}
		if err := p.ready(ctx); err != nil {
			return false, await.NotYet("waiting for %s: %w", p.name, err)
		}
		return true, nil
	})
}

func (p *Process) exitError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return errNotRunning
	}
	return p.err
}

// Stop ends the process with SIGTERM, and with SIGKILL if that takes too long. It is no error if the process does not
// run.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

// Kill ends the process with SIGKILL, as a crash would.
func (p *Process) Kill() error {
	p.mu.Lock()
	p.killed = append(p.killed, time.Now()) //nolint:forbidigo // the time is for people
	p.mu.Unlock()
	return p.end(syscall.SIGKILL)
}

// Killed returns the times of Kill.
func (p *Process) Killed() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.killed)
}

func (p *Process) end(sig syscall.Signal) error {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	timer := time.NewTimer(max(p.grace, stopGrace))
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	<-ended
	return nil
}

// Restart kills the process, as a crash would, and starts it again.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Start(ctx)
}

// LogTail returns the last lines of the process' output.
func (p *Process) LogTail(lines int) string {
	b, err := os.ReadFile(p.LogPath())
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return string(bytes.Join(all, []byte("\n")))
}

// starts sends commands to the thread that starts them.
var (
	starts     = make(chan startRequest)
	startsOnce sync.Once
)

type startRequest struct {
	cmd  *exec.Cmd
	done chan error
}

// startPinned starts cmd from a thread that lives as long as this process. The kernel sends the parent-death signal
// when the thread that forked ends, and the Go runtime may end threads at any time: see prctl(2), PR_SET_PDEATHSIG.
func startPinned(cmd *exec.Cmd) error {
	startsOnce.Do(func() {
		go func() {
			runtime.LockOSThread()
			for r := range starts {
				r.done <- r.cmd.Start()
			}
		}()
	})
	r := startRequest{cmd: cmd, done: make(chan error, 1)}
	starts <- r
	return <-r.done
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package detect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
)

// program copies sleep under a name that no other process has.
func program(tb testing.TB, name string) string {
	tb.Helper()
	from, err := osexec.LookPath("sleep")
	if err != nil {
		tb.Skipf("no program to copy: %v", err)
	}
	in, err := os.Open(from)
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(tb.TempDir(), name)
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		tb.Fatal(err)
	}
	if err := out.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}

func spawn(tb testing.TB, name string, args ...string) *osexec.Cmd {
	tb.Helper()
	cmd := osexec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// watch runs a detector with the real kernel and returns its matches. It skips if the kernel has no connector.
func watch(tb testing.TB, mode detect.Mode, commands, substrings []string) <-chan detect.Match {
	tb.Helper()
	d := detect.New(detect.Options{
		Mode: mode, Log: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: &metrics.Set{},
		Open: func() (*process.Table, error) { return process.Open("/proc") },
	})
	if mode == detect.Netlink {
		conn, err := procevents.Dial(procevents.Options{Now: time.Now})
		if err != nil {
			tb.Skipf("no proc connector here: %v", err)
		}
		_ = conn.Close()
	}
	ctx, cancel := context.WithCancel(tb.Context())
	found, ended := make(chan detect.Match, 100), make(chan error, 1)
	go func() {
		ended <- d.Run(ctx, match.New(commands, substrings), 50*time.Millisecond, func(m detect.Match) { found <- m })
	}()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			tb.Errorf("Run() = %v", err)
		}
	})
	return found
}

func await(t *testing.T, found <-chan detect.Match, pid int, source match.Source) {
	t.Helper()
	select {
	case m := <-found:
		if m.PID != pid || m.Source != source {
			t.Errorf("found %+v, want pid %d by %s", m, pid, source)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("process %d was not found within 10 s", pid)
	}
}

func modes(t *testing.T, f func(t *testing.T, mode detect.Mode)) {
	t.Helper()
	for _, mode := range []detect.Mode{detect.Netlink, detect.Poll} {
		t.Run(string(mode), func(t *testing.T) { f(t, mode) })
	}
}

func TestIntegrationRunsAlready(t *testing.T) {
	modes(t, func(t *testing.T, mode detect.Mode) {
		t.Helper()
		name := fmt.Sprintf("5s-a-%d", os.Getpid())
		cmd := spawn(t, program(t, name), "60")
		await(t, watch(t, mode, []string{name}, nil), cmd.Process.Pid, match.Comm)
	})
}

func TestIntegrationAppears(t *testing.T) {
	modes(t, func(t *testing.T, mode detect.Mode) {
		t.Helper()
		name := fmt.Sprintf("5s-b-%d", os.Getpid())
		found := watch(t, mode, []string{name}, nil)
		cmd := spawn(t, program(t, name), "60")
		await(t, found, cmd.Process.Pid, match.Comm)
	})
}

func TestIntegrationByArguments(t *testing.T) {
	modes(t, func(t *testing.T, mode detect.Mode) {
		t.Helper()
		name := fmt.Sprintf("a-name-of-more-than-15-bytes-%d", os.Getpid())
		found := watch(t, mode, []string{name}, []string{name})
		cmd := spawn(t, program(t, name), "60")
		await(t, found, cmd.Process.Pid, match.Argv)
	})
}

// TestIntegrationExecInPlace starts a shell that executes the program: PID and start time do not change.
func TestIntegrationExecInPlace(t *testing.T) {
	modes(t, func(t *testing.T, mode detect.Mode) {
		t.Helper()
		name := fmt.Sprintf("5s-c-%d", os.Getpid())
		path := program(t, name)
		cmd := osexec.Command("sh", "-c", `read line; exec "$(cat "$0")" 60`, write(t, path))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skipf("no sh to start: %v", err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		found := watch(t, mode, []string{name}, nil)
		<-time.After(200 * time.Millisecond) // several polls find the shell
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
		await(t, found, cmd.Process.Pid, match.Comm)
	})
}

// leaderEnds is the variable that makes this test binary a program whose first thread ends.
const leaderEnds = "RECLAIM_AGENT_TEST_LEADER_ENDS"

func init() {
	if os.Getenv(leaderEnds) != "" {
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // init runs on the first thread
	}
}

// TestIntegrationLeaderEnded: the first thread ends before the agent reads the process, and others continue. The kernel
// then reports its name, but no arguments.
func TestIntegrationLeaderEnded(t *testing.T) {
	modes(t, func(t *testing.T, mode detect.Mode) {
		t.Helper()
		name := fmt.Sprintf("leader-%s-%d", mode, os.Getpid())
		cmd := osexec.Command(os.Args[0], name)
		cmd.Env = append(os.Environ(), leaderEnds+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		stat := fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)
		for deadline := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
			if raw, err := os.ReadFile(stat); err == nil && strings.Contains(string(raw), ") Z ") {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("the first thread does not end: %s (%v)", raw, err)
			}
		}
		await(t, watch(t, mode, nil, []string{name}), cmd.Process.Pid, match.Argv)
	})
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "path")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestIntegrationShortLived runs programs that live for 150 ms. On an idle machine a hundredth is sufficient; tests run
// on busy machines.
func TestIntegrationShortLived(t *testing.T) {
	name := fmt.Sprintf("5s-d-%d", os.Getpid())
	found := watch(t, detect.Netlink, []string{name}, nil)
	path := program(t, name)
	for range 10 {
		cmd := spawn(t, path, "0.15")
		await(t, found, cmd.Process.Pid, match.Comm)
		_ = cmd.Wait()
	}
}

// BenchmarkDecision measures the time to the decision, from the kernel's timestamp of an exec and from the call that
// starts a process.
func BenchmarkDecision(b *testing.B) {
	name := fmt.Sprintf("5s-e-%d", os.Getpid())
	path := program(b, name)
	found := watch(b, detect.Netlink, []string{"java", "steam"}, []string{"idea", name})
	var kernel, call []time.Duration
	for b.Loop() {
		cmd := osexec.Command(path, "0.01")
		begun := time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		m := <-found
		kernel, call = append(kernel, m.Latency), append(call, time.Since(begun))
		_ = cmd.Wait()
	}
	for what, took := range map[string][]time.Duration{"event": kernel, "call": call} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), what+"-p50-us")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), what+"-p99-us")
	}
}

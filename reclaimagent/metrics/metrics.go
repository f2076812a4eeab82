// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the agent's metrics and serves them in Prometheus' text format. It does without Prometheus'
// library, which would need more memory than the agent.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Set is the metrics of one agent. The zero value is ready to use. It is safe for concurrent use.
type Set struct {
	// Execs counts programs that the kernel announced. Renames counts new names.
	Execs, Renames atomic.Uint64
	// Decisions counts evaluations of one process, with any result.
	Decisions atomic.Uint64
	// Vanished counts processes that ended before they were read. Hidden counts processes that exist and cannot be
	// read.
	Vanished, Hidden atomic.Uint64
	// Matches counts matching processes that cause a request. Excluded counts matching processes that belong to a pod,
	// a container, or their runtime.
	Matches, Excluded atomic.Uint64
	// Overruns counts losses of events. Silences counts missed heartbeats. Rescans counts scans of all processes
	// outside of polling, and Polls counts scans by polling.
	Overruns, Silences, Rescans, Polls atomic.Uint64
	// Reports counts requests that the API server accepted. Refusals counts matches that were not reported because the
	// Node describes another machine.
	Reports, Refusals atomic.Uint64
	// Hangs counts how often a process was excluded from reading because its arguments could not be read in time.
	Hangs atomic.Uint64

	// Hung is the number of processes that are excluded now. They match only by name.
	Hung atomic.Int64

	// HeldPods is the number of pods that the agent holds now. HoldLatency is the time from the match to the last
	// freeze of the last hold, in nanoseconds. HoldFailures counts what failed about holds.
	HeldPods, HoldLatency atomic.Int64
	HoldFailures          HoldFailures

	// MatchLatency is the time from the kernel's event to the decision, of the last match that an event announced, in
	// nanoseconds.
	MatchLatency atomic.Int64
	// PollInterval is the current interval between polls in nanoseconds. It is zero while the agent does not poll.
	PollInterval atomic.Int64

	// StateReported means that the Node's annotation has the agent's current state, and that the agent is not blind.
	StateReported atomic.Bool

	// OnDetector, if set before first use, is called with the detector and blind after SetDetector, and after SetBlind
	// if that is a change.
	OnDetector func(name string, blind bool)

	detector atomic.Value // a string
	blind    atomic.Bool
}

// SetDetector sets the detector in use, "" for none.
func (s *Set) SetDetector(name string) {
	s.detector.Store(name)
	s.onDetector()
}

// SetBlind sets whether the processes of other users cannot be read. It reports whether the value changed.
func (s *Set) SetBlind(blind bool) (changed bool) {
	changed = s.blind.Swap(blind) != blind
	if changed {
		s.onDetector()
	}
	return changed
}

func (s *Set) onDetector() {
	if s.OnDetector != nil {
		s.OnDetector(s.Detector(), s.blind.Load())
	}
}

// Detector returns the detector in use, "" for none.
func (s *Set) Detector() string {
	name, _ := s.detector.Load().(string)
	return name
}

// Write writes the metrics in Prometheus' text format 0.0.4.
func (s *Set) Write(w io.Writer) error {
	counters := []struct {
		name, help string
		value      *atomic.Uint64
	}{
		{"execs_total", "Programs started, as announced by the kernel.", &s.Execs},
		{"renames_total", "New names of processes, as announced by the kernel.", &s.Renames},
		{"decisions_total", "Decisions about one process.", &s.Decisions},
		{"vanished_total", "Processes gone before they were read.", &s.Vanished},
		{"hidden_total", "Programs started in processes that exist and cannot be read.", &s.Hidden},
		{"matches_total", "Processes that matched and count.", &s.Matches},
		{"excluded_total", "Processes that matched but belong to a pod, a container, or their runtime.", &s.Excluded},
		{"overruns_total", "Losses of events, each followed by a rescan.", &s.Overruns},
		{"silences_total", "Missed heartbeats, each followed by a new subscription.", &s.Silences},
		{"rescans_total", "Scans of all processes outside of polling.", &s.Rescans},
		{"polls_total", "Scans of all processes by polling.", &s.Polls},
		{"reports_total", "Requests accepted by the API server.", &s.Reports},
		{"hangs_total", "Times a process was put aside because its arguments could not be read without waiting.", &s.Hangs},
		{"refusals_total", "Matches not reported because the Node is another machine.", &s.Refusals},
	}
	var errs []error
	line := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	const prefix = "fivespot_agent_"
	for _, c := range counters {
		name := prefix + c.name
		line("# HELP %s %s\n# TYPE %s counter\n%s %d\n", name, c.help, name, name, c.value.Load())
	}
	gauge := func(name, help string, value float64) {
		name = prefix + name
		line("# HELP %s %s\n# TYPE %s gauge\n%s %g\n", name, help, name, name, value)
	}
	gauge("hung_processes", "Processes that are put aside: matched by their name only.", float64(s.Hung.Load()))
	gauge("match_latency_seconds", "Kernel's event to decision, of the last match that an event announced.", time.Duration(s.MatchLatency.Load()).Seconds())
	gauge("poll_interval_seconds", "Current time between polls; zero while the agent does not poll.", time.Duration(s.PollInterval.Load()).Seconds())
	gauge("held_pods", "Pods that are held: frozen until the machine is deleted or the request is cleared.", float64(s.HeldPods.Load()))
	gauge("hold_latency_seconds", "Match to the last freeze of a pod, of the last hold.", time.Duration(s.HoldLatency.Load()).Seconds())
	s.HoldFailures.write(line, prefix+"hold_failures_total")
	blind := 0.0
	if s.blind.Load() {
		blind = 1
	}
	gauge("blind", "Set to 1 while the processes of other users cannot be read: the owner's programs are not noticed.", blind)
	const detector = prefix + "detector"
	line("# HELP %s Detector in use.\n# TYPE %s gauge\n", detector, detector)
	for _, name := range []string{"netlink", "poll"} {
		inUse := 0
		if s.Detector() == name {
			inUse = 1
		}
		line("%s{detector=%q} %d\n", detector, name, inUse)
	}
	return errors.Join(errs...)
}

// Handler serves /metrics, /healthz and /readyz. /healthz always returns 200. /readyz returns 200 if this process has
// written its state to the Node; a reader of the Node cannot distinguish it from the state of a previous process.
func (s *Set) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = s.Write(w)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.StateReported.Load() {
			http.Error(w, s.unready(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}

func (s *Set) unready() string {
	if s.blind.Load() {
		return "the processes of other users cannot be read"
	}
	return "the Node does not say what is looked for"
}

// Serve serves on l until ctx is done.
func (s *Set) Serve(ctx context.Context, l net.Listener) error {
	const clientTimeout = 5 * time.Second // for clients that never finish
	server := &http.Server{Handler: s.Handler(), ReadTimeout: clientTimeout, WriteTimeout: clientTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}

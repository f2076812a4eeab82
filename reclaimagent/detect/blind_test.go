// SPDX-License-Identifier: Apache-2.0

package detect_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
)

// blind reads the gauge from the output for Prometheus.
func blind(t *testing.T, s *metrics.Set) bool {
	t.Helper()
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(b.String(), "\nfivespot_agent_blind 1\n")
}

// TestBlind hides processes while the detectors run, and shows them again.
func TestBlind(t *testing.T) {
	hide := func(err error) func(*machine) { return func(m *machine) { m.hidden = err } }
	cases := map[string]struct {
		reason string
		hide   func(m *machine)
	}{
		"Invisible":  {"hidepid=2 shows only what the reader may trace.", hide(fs.ErrNotExist)},
		"NoAccess":   {"hidepid=1 lists processes that cannot be read.", hide(syscall.EPERM)},
		"Denied":     {"A security module may deny any process.", func(m *machine) { m.unreadable = "20/comm" }},
		"NoArgument": {"Also its arguments alone.", func(m *machine) { m.unreadable = "20/cmdline" }},
		"NoFirst":    {"Process 1 always exists.", func(m *machine) { m.unreadable = "1/status" }},
	}
	for name, tc := range cases {
		for _, mode := range []detect.Mode{detect.Netlink, detect.Poll} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					change := func(m *machine, f func(*machine)) { m.mu.Lock(); f(m); m.mu.Unlock() }
					m, e := newMachine(), newEvents()
					m.start(20, "bash", "bash", ownerCgroup)
					change(m, tc.hide)
					r := start(t, m, mode, dialing(e))
					if !blind(t, &r.counts) {
						t.Errorf("%s\nThe agent starts and does not report that it is blind.", tc.reason)
					}
					m.start(21, "java", "java", ownerCgroup)
					change(m, func(m *machine) { m.hidden, m.unreadable = nil, "" })
					time.Sleep(2 * time.Second)
					if diff := cmp.Diff([]found{{21, "java", match.Comm, mode}}, r.got()); diff != "" || blind(t, &r.counts) {
						t.Errorf("%s\nblind %t. A program that started meanwhile is found within two seconds after the end: -want, +got:\n%s", tc.reason, blind(t, &r.counts), diff)
					}
					change(m, tc.hide)
					time.Sleep(pastScanInterval)
					if !blind(t, &r.counts) {
						t.Errorf("%s\nThe agent becomes blind later and does not report it.", tc.reason)
					}
				})
			})
		}
	}
}

// TestNewSubscriptionStaysBlind: a subscription ends while reads are denied.
func TestNewSubscriptionStaysBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := newMachine(), newEvents()
		m.start(20, "bash", "bash", ownerCgroup)
		m.unreadable = "20/comm"
		dials := 0
		r := start(t, m, detect.Netlink, func(bool) (detect.Events, error) {
			if dials++; dials == 1 {
				return e, nil
			}
			return newEvents(), nil
		})
		r.counts.OnDetector = func(name string, blind bool) {
			if !blind {
				t.Errorf("detector %q reports that it can read all processes", name)
			}
		}
		e.in <- procevents.ErrSilent
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if dials != 2 {
			t.Errorf("subscribed %d times, want 2", dials)
		}
	})
}

// TestHiddenStart: the kernel announces a program that cannot be read.
func TestHiddenStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := newMachine(), newEvents()
		m.start(20, "bash", "bash", ownerCgroup)
		r := start(t, m, detect.Netlink, dialing(e))
		time.Sleep(2 * time.Second)
		m.mu.Lock()
		m.hidden = syscall.EPERM
		m.mu.Unlock()
		e.in <- exec(20)
		time.Sleep(time.Millisecond)
		if !blind(t, &r.counts) || r.counts.Hidden.Load() != 1 || r.counts.Vanished.Load() != 0 {
			t.Errorf("blind %t, hidden %d, vanished %d: one hidden program is proof enough, and is not one that ended",
				blind(t, &r.counts), r.counts.Hidden.Load(), r.counts.Vanished.Load())
		}
	})
}

func TestScanReportsHiddenProcesses(t *testing.T) {
	m := newMachine()
	m.start(20, "java", "java", ownerCgroup)
	m.start(21, "bash", "bash", ownerCgroup)
	m.unreadable = "21/comm"
	d := detect.New(detect.Options{
		Mode: detect.Poll, Log: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: &metrics.Set{},
		Open: func() (*process.Table, error) { return process.FromFS(m, agentPID), nil },
	})
	got, err := d.Scan(match.New([]string{"java"}, nil))
	if !errors.Is(err, process.ErrHidden) || !slices.ContainsFunc(got, func(m detect.Match) bool { return m.PID == 20 }) {
		t.Errorf("Scan() = %v, %v, want 20 and that there may be more", got, err)
	}
	if want := fmt.Sprintf("%d of %d", 1, 3); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Scan() = %v, want %q", err, want)
	}
}

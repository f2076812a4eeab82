// SPDX-License-Identifier: Apache-2.0

package detect_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
)

// TestHungProcessesDoNotHideOthers: the arguments of some processes block every reader, as if a file server is down.
// All other processes are found.
func TestHungProcessesDoNotHideOthers(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(m *machine)
		after  func(m *machine, announce func(pid int))
		want   []found
		hung   int64
	}{
		"DuringTheScan": {
			reason: "The scan continues with the next process.",
			before: func(m *machine) {
				m.start(60, "stuck", "stuck", ownerCgroup)
				m.hang(60)
				m.start(61, "bash", "x idea", ownerCgroup)
			},
			want: []found{{61, "idea", match.Argv, ""}},
			hung: 1,
		},
		"WhenAnnounced": {
			reason: "An event after it is handled.",
			after: func(m *machine, announce func(int)) {
				m.start(60, "stuck", "stuck", ownerCgroup)
				m.hang(60)
				m.start(61, "bash", "x idea", ownerCgroup)
				announce(60)
				announce(61)
			},
			want: []found{{61, "idea", match.Argv, ""}},
			hung: 1,
		},
		"ByName": {
			reason: "Its name can be read.",
			before: func(m *machine) { m.start(60, "java", "java", ownerCgroup); m.hang(60) },
			want:   []found{{60, "java", match.Comm, ""}},
			hung:   -1, // whether its arguments were read, too
		},
		"ThatComesBack": {
			reason: "It is evaluated as soon as its arguments can be read.",
			after: func(m *machine, announce func(int)) {
				m.start(60, "bash", "x idea", ownerCgroup)
				m.hang(60)
				announce(60)
				time.Sleep(2 * time.Second)
				m.release()
			},
			want: []found{{60, "idea", match.Argv, ""}},
		},
		"WhoseIDIsGivenToAnother": {
			reason: "The next process with that PID is another one.",
			after: func(m *machine, announce func(int)) {
				m.start(60, "stuck", "stuck", ownerCgroup)
				m.hang(60)
				announce(60)
				time.Sleep(2 * time.Second)
				m.exit(60)
				m.forget(60)
				m.startAt(60, 5000, "bash", "x idea", ownerCgroup)
				announce(60)
			},
			want: []found{{60, "idea", match.Argv, ""}},
			hung: 1,
		},
		"ManyWorkloads": {
			reason: "Processes of pods do not use the limit of hung processes.",
			before: func(m *machine) {
				for pid := 100; pid < 150; pid++ {
					m.start(pid, "server", "server", podCgroup)
					m.hang(pid)
				}
			},
			after: func(m *machine, announce func(int)) { m.start(61, "bash", "x idea", ownerCgroup); announce(61) },
			want:  []found{{61, "idea", match.Argv, ""}},
			hung:  1,
		},
		"MoreThanThereIsRoomFor": {
			reason: "The number of blocked threads is limited; names are still read.",
			before: func(m *machine) {
				for pid := 100; pid < 150; pid++ {
					m.start(pid, "stuck", "stuck", ownerCgroup)
					m.hang(pid)
				}
			},
			after: func(m *machine, announce func(int)) {
				time.Sleep(10 * time.Second)
				m.start(61, "java", "java", ownerCgroup)
				announce(61)
			},
			want: []found{{61, "java", match.Comm, ""}},
			hung: 32,
		},
	}
	for name, tc := range cases {
		for _, mode := range []detect.Mode{detect.Netlink, detect.Poll} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, e := newMachine(), newEvents()
					defer m.release() // no goroutine may be blocked at the end of the test
					if tc.before != nil {
						tc.before(m)
					}
					r := start(t, m, mode, dialing(e))
					time.Sleep(betweenPolls)
					if tc.after != nil {
						tc.after(m, func(pid int) { e.in <- exec(pid) })
					}
					time.Sleep(2 * time.Second)
					for i := range tc.want {
						tc.want[i].Detector = mode
					}
					if diff := cmp.Diff(tc.want, r.got()); diff != "" {
						t.Errorf("%s\nfound: -want, +got:\n%s", tc.reason, diff)
					}
					if got := r.counts.Hung.Load(); got != tc.hung && tc.hung >= 0 {
						t.Errorf("%s\nthe metric has %d hung processes, want %d", tc.reason, got, tc.hung)
					}
				})
			})
		}
	}
}

// TestNextRunKnowsHungProcesses: the configuration changes while a process blocks readers. The next run does not lose
// another thread to it.
func TestNextRunKnowsHungProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		defer m.release()
		m.start(60, "stuck", "stuck", ownerCgroup)
		m.start(61, "java", "java", ownerCgroup)
		m.hang(60)
		var counts metrics.Set
		d := detect.New(detect.Options{
			Mode: detect.Poll, Log: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: &counts, CPUTime: noCost,
			Open: func() (*process.Table, error) { return process.FromFS(m, agentPID), nil },
		})
		for range 3 {
			matches, err := d.Scan(match.New([]string{"java"}, []string{"idea"}))
			if err != nil || len(matches) != 1 || matches[0].PID != 61 {
				t.Errorf("Scan() = %+v, %v, want 61", matches, err)
			}
		}
		if n := counts.Hangs.Load(); n != 1 {
			t.Errorf("%d threads wait for the same process", n)
		}
	})
}

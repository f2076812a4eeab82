// SPDX-License-Identifier: Apache-2.0

package detect_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
)

const (
	ownerCgroup = "0::/user.slice/user-1000.slice/session-2.scope\n"
	podCgroup   = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ab.scope\n"
	agentPID    = 4

	// interval is the time between polls.
	interval = 250 * time.Millisecond
)

// machine is a /proc that changes during reads.
type machine struct {
	mu     sync.Mutex
	fsys   fstest.MapFS
	broken bool
	// unreadable is a file that cannot be opened or read.
	unreadable string
	// hidden is why only the agent's files can be opened, nil if all can.
	hidden error
	// hanging are the processes whose arguments block a reader until the channel is closed.
	hanging   map[int]chan struct{}
	forgotten []chan struct{}
}

// hang blocks every reader of the arguments of the processes.
func (m *machine) hang(pids ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pid := range pids {
		m.hanging[pid] = make(chan struct{})
	}
}

// release unblocks the arguments of all processes, also for blocked readers.
func (m *machine) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range slices.Concat(slices.Collect(maps.Values(m.hanging)), m.forgotten) {
		close(c)
	}
	m.forgotten = nil
	clear(m.hanging)
}

// forget unblocks the arguments of a process for new readers. Readers that are blocked remain blocked.
func (m *machine) forget(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgotten = append(m.forgotten, m.hanging[pid])
	delete(m.hanging, pid)
}

// wait blocks if the file has the arguments of a hanging process.
func (m *machine) wait(name string) {
	m.mu.Lock()
	dir, file, _ := strings.Cut(name, "/")
	pid, _ := strconv.Atoi(dir)
	c := m.hanging[pid]
	m.mu.Unlock()
	if c != nil && file == "cmdline" {
		<-c
	}
}

func newMachine() *machine {
	m := &machine{fsys: fstest.MapFS{}, hanging: map[int]chan struct{}{}}
	m.start(1, "systemd", "/sbin/init", "0::/init.scope\n")
	m.start(agentPID, "reclaim-agent", "reclaim-agent --node-name java", ownerCgroup)
	return m
}

// start adds a process, or changes its program if it exists. A blank separates arguments.
func (m *machine) start(pid int, comm, argv, cgroup string) {
	m.startAt(pid, 1000+pid, comm, argv, cgroup)
}

func (m *machine) startAt(pid, ticks int, comm, argv, cgroup string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	put := func(name, text string) { m.fsys[fmt.Sprintf("%d/%s", pid, name)] = &fstest.MapFile{Data: []byte(text)} }
	put("comm", comm+"\n")
	if argv != "" {
		argv = strings.ReplaceAll(argv, " ", "\x00") + "\x00"
	}
	put("cmdline", argv)
	put("cgroup", cgroup)
	put("status", "Name:\t"+comm+"\nUid:\t0\t0\t0\t0\n")
	put("stat", fmt.Sprintf("%d (%s) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %d 0\n", pid, comm, ticks))
}

func (m *machine) exit(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.fsys {
		if strings.HasPrefix(name, fmt.Sprintf("%d/", pid)) {
			delete(m.fsys, name)
		}
	}
}

func (m *machine) Open(name string) (fs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken || name == m.unreadable {
		return nil, fs.ErrPermission
	}
	if m.hidden != nil && name != "." && !strings.HasPrefix(name, fmt.Sprintf("%d/", agentPID)) {
		return nil, m.hidden
	}
	if name == "." {
		return maps.Clone(m.fsys).Open(name)
	}
	f, err := m.fsys.Open(name)
	return &live{File: f, m: m, name: name}, err
}

// live is a file of /proc. It has the state of the process at the time of the read.
type live struct {
	fs.File
	m    *machine
	name string
}

func (l *live) ReadAt(b []byte, off int64) (int, error) {
	l.m.wait(l.name)
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	f, ok := l.m.fsys[l.name]
	if l.name == l.m.unreadable {
		return 0, fs.ErrPermission
	}
	if !ok {
		return 0, syscall.ESRCH
	}
	return bytes.NewReader(f.Data).ReadAt(b, off)
}

// events is a subscription with a channel, in synctest's time.
type events struct {
	in     chan any
	closed chan struct{}
	once   sync.Once
}

func newEvents() *events { return &events{in: make(chan any, 64), closed: make(chan struct{})} }

func (e *events) Next(until time.Time) ([]procevents.Event, error) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-e.closed:
		return nil, net.ErrClosed
	case <-timer.C:
		return nil, nil
	case got := <-e.in:
		if err, ok := got.(error); ok {
			return nil, err
		}
		return []procevents.Event{got.(procevents.Event)}, nil
	}
}

func (e *events) Close() error { e.once.Do(func() { close(e.closed) }); return nil }

func exec(pid int) procevents.Event {
	return procevents.Event{Kind: procevents.Exec, PID: pid, TGID: pid}
}

// renamed builds the event as the kernel sends it.
func renamed(t *testing.T, pid int, comm string) procevents.Event {
	t.Helper()
	b := make([]byte, 76)
	for offset, v := range map[int]uint32{0: 76, 16: 1, 20: 1, 32: 40, 36: 0x200, 52: uint32(pid), 56: uint32(pid)} {
		binary.NativeEndian.PutUint32(b[offset:], v)
	}
	copy(b[60:], comm)
	e, _, err := procevents.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

type found struct {
	PID      int
	Pattern  string
	Source   match.Source
	Detector detect.Mode
}

// run is a running detector.
type run struct {
	mu     sync.Mutex
	found  []found
	err    error
	ended  chan struct{}
	counts metrics.Set
}

func (r *run) got() []found {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

func start(t *testing.T, m *machine, mode detect.Mode, dial func(unfiltered bool) (detect.Events, error)) *run {
	t.Helper()
	return startFor(t, m, mode, dial, match.New([]string{"java"}, []string{"java", "idea"}))
}

// startFor starts a detector with other patterns.
func startFor(t *testing.T, m *machine, mode detect.Mode, dial func(unfiltered bool) (detect.Events, error), patterns *match.Matcher) *run {
	t.Helper()
	r := &run{ended: make(chan struct{})}
	d := detect.New(detect.Options{
		Mode: mode, Dial: dial, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, Metrics: &r.counts, CPUTime: noCost,
		Open: func() (*process.Table, error) { return process.FromFS(m, agentPID), nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(r.ended)
		r.err = d.Run(ctx, patterns, interval, func(m detect.Match) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.found = append(r.found, found{m.PID, m.Pattern, m.Source, m.Detector})
		})
	}()
	t.Cleanup(func() { cancel(); <-r.ended })
	synctest.Wait()
	return r
}

func dialing(e *events) func(bool) (detect.Events, error) {
	return func(bool) (detect.Events, error) { return e, nil }
}

func noConnector(bool) (detect.Events, error) {
	return nil, fmt.Errorf("%w: it needs the network namespace of the host", procevents.ErrUnavailable)
}

// TestBothDetectors runs the same scenario with both detectors. They must find the same.
func TestBothDetectors(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(m *machine)
		after  func(m *machine, announce func(pid int))
		want   []found
	}{
		"RunsAlready": {
			reason: "A process that runs before the start is found.",
			before: func(m *machine) { m.start(10, "java", "java -jar x", ownerCgroup) },
			want:   []found{{10, "java", match.Comm, ""}},
		},
		"Appears": {
			reason: "So is one that appears.",
			after: func(m *machine, announce func(int)) {
				m.start(11, "bash", "/opt/idea/bin/idea.sh", ownerCgroup)
				announce(11)
			},
			want: []found{{11, "idea", match.Argv, ""}},
		},
		"ExecInPlace": {
			reason: "Exec keeps pid and start time.",
			before: func(m *machine) { m.start(12, "bash", "bash", ownerCgroup) },
			after:  func(m *machine, announce func(int)) { m.start(12, "java", "java", ownerCgroup); announce(12) },
			want:   []found{{12, "java", match.Comm, ""}},
		},
		"Once": {
			reason: "A process is reported once, however often a scan finds it.",
			before: func(m *machine) { m.start(13, "java", "java", ownerCgroup) },
			after:  func(_ *machine, announce func(int)) { announce(13); announce(13) },
			want:   []found{{13, "java", match.Comm, ""}},
		},
		"Workload": {
			reason: "A pod must not eject its own node.",
			before: func(m *machine) { m.start(14, "java", "java", podCgroup) },
			after:  func(m *machine, announce func(int)) { m.start(15, "java", "java", podCgroup); announce(15) },
		},
		"UnknownStanding": {
			reason: "A process that may belong to a pod does not count.",
			before: func(m *machine) { m.start(19, "java", "java", ownerCgroup); m.unreadable = "19/cgroup" },
		},
		"KubeletsDirectory": {
			reason: "A storage driver on the host gets the path of a volume whose name a pod chooses.",
			before: func(m *machine) {
				m.start(31, "ceph-fuse", "/usr/bin/ceph-fuse /var/lib/kubelet/pods/1/volumes/java/mount", ownerCgroup)
				m.start(32, "csi", "csi --dir=/var/snap/microk8s/common/var/lib/kubelet/idea -v", ownerCgroup)
				m.start(33, "mount", "mount /var/lib/k0s/kubelet/pods/java "+strings.Repeat("x", 20<<10), ownerCgroup)
			},
			after: func(m *machine, announce func(int)) {
				m.start(34, "fuse", "fuse -o root=/var/lib/kubelet/java,ro", ownerCgroup)
				announce(34)
			},
		},
		"BesideKubeletsDirectory": {
			reason: "Its other arguments count.",
			before: func(m *machine) {
				m.start(35, "sh", "sh /var/lib/kubelet/java idea", ownerCgroup)
				m.start(36, "sh", "sh /var/lib/kubelets/java", ownerCgroup)
				m.start(37, "java", "/var/lib/kubelet/java", ownerCgroup)
			},
			want: []found{{35, "idea", match.Argv, ""}, {36, "java", match.Argv, ""}, {37, "java", match.Comm, ""}},
		},
		"TheAgentItself": {
			reason: "Its arguments name patterns.",
			after:  func(_ *machine, announce func(int)) { announce(agentPID) },
		},
		"NamedLikeTheAgent": {
			reason: "Any user may give a program that name.",
			after: func(m *machine, announce func(int)) {
				m.start(16, "reclaim-agent", "reclaim-agent -jar idea.jar", ownerCgroup)
				announce(16)
			},
			want: []found{{16, "idea", match.Argv, ""}},
		},
		"KernelThread": {
			reason: "Without arguments nothing is found in them.",
			after:  func(m *machine, announce func(int)) { m.start(17, "kworker/0:1", "", "0::/\n"); announce(17) },
		},
		"GoneBeforeRead": {
			reason: "A process that has ended is counted, and is no failure.",
			after:  func(_ *machine, announce func(int)) { announce(18) },
		},
	}
	for name, tc := range cases {
		for _, mode := range []detect.Mode{detect.Netlink, detect.Poll} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, e := newMachine(), newEvents()
					if tc.before != nil {
						tc.before(m)
					}
					r := start(t, m, mode, dialing(e))
					if tc.after != nil {
						tc.after(m, func(pid int) { e.in <- exec(pid) })
					}
					time.Sleep(time.Second)
					want := slices.Clone(tc.want)
					for i := range want {
						want[i].Detector = mode
					}
					if diff := cmp.Diff(want, r.got()); diff != "" {
						t.Errorf("%s\nfound: -want, +got:\n%s", tc.reason, diff)
					}
					if got := r.counts.Detector(); got != string(mode) {
						t.Errorf("detector in use is %q, want %q", got, mode)
					}
				})
			})
		}
	}
}

// betweenPolls, used once, moves a scenario of whole seconds half an interval away from every poll. A scan at the same
// time as an exec may read half of it.
const betweenPolls = interval / 2

// TestDetectorsAgree runs random scenarios.
func TestDetectorsAgree(t *testing.T) {
	type step struct {
		PID          int
		Comm, Argv   string
		Pod, Exiting bool
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			PID:     rapid.IntRange(10, 14).Draw(t, "pid"),
			Comm:    rapid.SampledFrom([]string{"java", "bash", "reclaim-agent"}).Draw(t, "comm"),
			Argv:    rapid.SampledFrom([]string{"", "java", "x idea y", "sh -c true"}).Draw(t, "argv"),
			Pod:     rapid.Bool().Draw(t, "pod"),
			Exiting: rapid.Bool().Draw(t, "exiting"),
		}
	}), 1, 12)
	rapid.Check(t, func(rt *rapid.T) {
		story := steps.Draw(rt, "story")
		verdict := map[detect.Mode][]int{}
		for _, mode := range []detect.Mode{detect.Netlink, detect.Poll} {
			synctest.Test(t, func(t *testing.T) {
				m, e := newMachine(), newEvents()
				r := start(t, m, mode, dialing(e))
				time.Sleep(betweenPolls)
				for _, s := range story {
					cgroup := ownerCgroup
					if s.Pod {
						cgroup = podCgroup
					}
					m.start(s.PID, s.Comm, s.Argv, cgroup)
					e.in <- exec(s.PID)
					time.Sleep(time.Second)
					if s.Exiting {
						m.exit(s.PID)
						time.Sleep(time.Second)
					}
				}
				for _, f := range r.got() {
					verdict[mode] = append(verdict[mode], f.PID)
				}
				slices.Sort(verdict[mode])
				verdict[mode] = slices.Compact(verdict[mode])
			})
		}
		if diff := cmp.Diff(verdict[detect.Poll], verdict[detect.Netlink]); diff != "" {
			rt.Fatalf("the detectors disagree: -poll, +netlink:\n%s", diff)
		}
	})
}

func TestRenameIsMatchedByTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := newMachine(), newEvents()
		m.start(20, "bash", "bash", ownerCgroup)
		r := start(t, m, detect.Netlink, dialing(e))
		// At the time of the read, /proc has another name.
		e.in <- renamed(t, 20, "java")
		e.in <- renamed(t, agentPID, "java")
		time.Sleep(time.Second)
		if diff := cmp.Diff([]found{{20, "java", match.Comm, detect.Netlink}}, r.got()); diff != "" {
			t.Errorf("The name in the event counts.\n-want, +got:\n%s", diff)
		}
	})
}

func TestScansFindUnannouncedPrograms(t *testing.T) {
	java := []found{{30, "java", match.Comm, detect.Netlink}}
	cases := map[string]struct {
		reason string
		event  any
		within time.Duration
		count  func(s *metrics.Set) uint64
	}{
		"Overrun":     {"A scan follows a loss of events at once.", procevents.ErrOverrun, time.Millisecond, func(s *metrics.Set) uint64 { return s.Overruns.Load() }},
		"Silence":     {"A scan follows a missed heartbeat.", procevents.ErrSilent, time.Millisecond, func(s *metrics.Set) uint64 { return s.Silences.Load() }},
		"SocketFails": {"A scan follows a failure of the socket.", errors.New("broken"), time.Millisecond, func(s *metrics.Set) uint64 { return s.Rescans.Load() - 1 }},
		"Unannounced": {"A change without an event is found by the next scan.", nil, pastScanInterval, func(s *metrics.Set) uint64 { return s.Rescans.Load() - 1 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				var last atomic.Pointer[events]
				r := start(t, m, detect.Netlink, func(bool) (detect.Events, error) {
					last.Store(newEvents())
					return last.Load(), nil
				})
				time.Sleep(10 * time.Second)
				m.start(30, "java", "java", ownerCgroup)
				if tc.event != nil {
					last.Load().in <- tc.event
				}
				time.Sleep(tc.within)
				if diff := cmp.Diff(java, r.got()); diff != "" {
					t.Errorf("%s\nfound: -want, +got:\n%s", tc.reason, diff)
				}
				if n := tc.count(&r.counts); n == 0 {
					t.Errorf("%s\nThe metric is not incremented.", tc.reason)
				}
			})
		})
	}
}

// listed counts the listings of processes.
type listed struct {
	*machine
	times *atomic.Int64
}

func (l listed) Open(name string) (fs.File, error) {
	if name == "." {
		l.times.Add(1)
	}
	return l.machine.Open(name)
}

// TestSubscribesBeforeItScans: a new run, as after a cleared request, misses no program that starts in the meantime.
func TestSubscribesBeforeItScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := newMachine(), newEvents()
		l := listed{machine: m, times: &atomic.Int64{}}
		d := detect.New(detect.Options{
			Mode: detect.Netlink, Log: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: &metrics.Set{},
			Open: func() (*process.Table, error) { return process.FromFS(l, agentPID), nil },
			Dial: func(bool) (detect.Events, error) {
				if n := l.times.Load(); n > 0 {
					t.Errorf("the processes were listed %d times before the subscription", n)
				}
				return e, nil
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Run(ctx, match.New([]string{"java"}, nil), interval, func(detect.Match) {}); err != nil || l.times.Load() == 0 {
			t.Errorf("Run() = %v after %d looks", err, l.times.Load())
		}
	})
}

const pastScanInterval = 61 * time.Second

func TestNetlinkWithoutConnectorFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newMachine(), detect.Netlink, noConnector)
		<-r.ended
		if !errors.Is(r.err, procevents.ErrUnavailable) || !strings.Contains(r.err.Error(), "network namespace") {
			t.Errorf("Run() = %v, want ErrUnavailable with the missing requirement", r.err)
		}
	})
}

func TestAutoFallsBackAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := newMachine(), newEvents()
		var there atomic.Bool
		r := start(t, m, detect.Auto, func(bool) (detect.Events, error) {
			if there.Load() {
				return e, nil
			}
			return noConnector(false)
		})
		m.start(40, "java", "java", ownerCgroup)
		time.Sleep(time.Second)
		there.Store(true)
		time.Sleep(6 * time.Minute)
		m.start(41, "java", "java", ownerCgroup)
		e.in <- exec(41)
		time.Sleep(time.Second)
		// The subscription breaks, and a new one fails.
		there.Store(false)
		e.in <- procevents.ErrSilent
		time.Sleep(time.Second)
		m.start(42, "java", "java", ownerCgroup)
		time.Sleep(time.Second)
		want := []found{{40, "java", match.Comm, detect.Poll}, {41, "java", match.Comm, detect.Netlink}, {42, "java", match.Comm, detect.Poll}}
		if diff := cmp.Diff(want, r.got()); diff != "" {
			t.Errorf("Polling starts and ends with netlink's failure, and reports no process twice.\n-want, +got:\n%s", diff)
		}
	})
}

// TestMissedHeartbeatDisablesTheFilter: a kernel with the filter bug answers the first heartbeat and drops the listener
// at the next fork, each time.
func TestMissedHeartbeatDisablesTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled := make(chan bool, 10)
		subscription := make(chan *events, 10)
		start(t, newMachine(), detect.Auto, func(unfiltered bool) (detect.Events, error) {
			e := newEvents()
			dialled <- unfiltered
			subscription <- e
			return e, nil
		})
		first := <-subscription
		time.Sleep(time.Minute)
		first.in <- procevents.ErrSilent
		second := <-subscription
		time.Sleep(time.Minute)
		second.in <- errors.New("broken")
		<-subscription
		if got := []bool{<-dialled, <-dialled, <-dialled}; !slices.Equal(got, []bool{false, true, true}) {
			t.Errorf("subscribed without a filter: %v, want from the first silence on", got)
		}
	})
}

func TestBrokenSubscriptionsDoNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		start(t, newMachine(), detect.Auto, func(bool) (detect.Events, error) {
			dials.Add(1)
			e := newEvents()
			e.in <- errors.New("broken")
			return e, nil
		})
		time.Sleep(time.Hour)
		if n := dials.Load(); n > 20 {
			t.Errorf("subscribed %d times in an hour, want once every 5 minutes", n)
		}
	})
}

// noCost is the CPU time of a test in synctest's time, which uses no CPU.
func noCost() time.Duration { return 0 }

// slow takes a second of synctest's time to list the processes, and uses the CPU for a part of it.
type slow struct {
	*machine

	each time.Duration
	used *atomic.Int64
}

func (s slow) Open(name string) (fs.File, error) {
	if name == "." {
		time.Sleep(time.Second)
		s.used.Add(int64(s.each))
	}
	return s.machine.Open(name)
}

func TestPollingIsBounded(t *testing.T) {
	cases := map[string]struct {
		reason      string
		each        time.Duration
		least, most uint64
	}{
		"Idle": {"A walk of 1s of CPU time is made every 20s: 5 % of a core.", time.Second, 29, 32},
		"Busy": {"Other processes use the CPU: a walk of 100ms of CPU time is made every 2s, however long it takes.", 100 * time.Millisecond, 290, 310},
		"Full": {"A walk that takes longer than its interval is followed by the next.", 10 * time.Millisecond, 590, 610},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var counts metrics.Set
				var used atomic.Int64
				d := detect.New(detect.Options{
					Mode: detect.Poll, Log: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: &counts,
					Open: func() (*process.Table, error) {
						return process.FromFS(slow{newMachine(), tc.each, &used}, agentPID), nil
					},
					CPUTime: func() time.Duration { return time.Duration(used.Load()) },
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := d.Run(ctx, match.New(nil, []string{"java"}), interval, func(detect.Match) {}); err != nil {
					t.Fatal(err)
				}
				if n := counts.Polls.Load(); n < tc.least || n > tc.most {
					t.Errorf("%s Got %d polls in 10 minutes", tc.reason, n)
				}
			})
		})
	}
}

func TestScan(t *testing.T) {
	m := newMachine()
	m.start(51, "bash", "x idea", ownerCgroup)
	m.start(50, "java", "java", ownerCgroup)
	m.start(49, "java", "java", podCgroup)
	d := detect.New(detect.Options{
		Mode: detect.Poll, Log: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: &metrics.Set{},
		Open: func() (*process.Table, error) { return process.FromFS(m, agentPID), nil },
	})
	matches, err := d.Scan(match.New([]string{"java"}, []string{"idea"}))
	if err != nil || len(matches) != 2 || matches[0].PID != 50 || matches[1].PID != 51 {
		t.Errorf("Scan() = %+v, %v, want 50 and 51", matches, err)
	}
	m.broken = true
	if _, err := d.Scan(match.New(nil, nil)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Scan() = %v, want the error of the proc root", err)
	}
}

func TestParseMode(t *testing.T) {
	for _, good := range []string{"auto", "netlink", "poll"} {
		if m, err := detect.ParseMode(good); err != nil || string(m) != good {
			t.Errorf("ParseMode(%q) = %q, %v", good, m, err)
		}
	}
	if _, err := detect.ParseMode("ebpf"); err == nil || !strings.Contains(err.Error(), "ebpf") {
		t.Errorf("ParseMode(ebpf) = %v, want an error that names it", err)
	}
}

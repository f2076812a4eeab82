// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
)

// seen is the data of one process in a visit.
type seen struct {
	PID        int
	Comm, Argv string
}

type text struct{ b strings.Builder }

func (t *text) Feed(piece []byte) { t.b.Write(piece) }

func collect(t *testing.T, into *[]seen) process.Visit {
	t.Helper()
	return func(p *process.Process) bool {
		var argv text
		if err := p.Argv(&argv); err != nil {
			t.Errorf("Argv of %d: %v", p.PID(), err)
		}
		*into = append(*into, seen{PID: p.PID(), Comm: string(p.Comm()), Argv: argv.b.String()})
		return true
	}
}

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

const statTail = " 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0\n"

func TestWalk(t *testing.T) {
	long := "java\x00" + strings.Repeat("x", 40<<10) + "\x00"
	proc := fstest.MapFS{
		"self/comm":     file("not a pid\n"),
		"0042/comm":     file("not what the kernel writes\n"),
		"99999999/comm": file("more than any pid\n"),
		"9/comm":        file("kthreadd\n"),
		"9/cmdline":     file(""),
		"7/comm":        file("agent\n"),
		"7/cmdline":     file("agent\x00--pattern=java\x00"),
		"8/comm":        file("agent\n"),
		"8/cmdline":     file("agent\x00check\x00"),
		"100/comm":      file("java\n"),
		"100/cmdline":   file(long),
		"101/comm":      file("odd\nname\n"),
		"101/cmdline":   file("a\x00b"),
		"102/stat":      file("exited before it was read"),
	}
	want := []seen{
		{PID: 8, Comm: "agent", Argv: "agent\x00check\x00"},
		{PID: 9, Comm: "kthreadd"},
		{PID: 100, Comm: "java", Argv: long},
		{PID: 101, Comm: "odd\nname", Argv: "a\x00b"},
	}
	for name, walk := range map[string]func(*process.Table, process.Visit) (process.WalkResult, error){
		"Walk": (*process.Table).Walk, "Rewalk": (*process.Table).Rewalk,
	} {
		t.Run(name, func(t *testing.T) {
			table := process.Patient(process.FromFS(proc, 7))
			var got []seen
			census, err := walk(table, collect(t, &got))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("All but ourselves, in order, whatever they are called. Error %v: -want, +got:\n%s", err, diff)
			}
			if diff := cmp.Diff(process.WalkResult{Processes: 4, Gone: 1}, census); diff != "" {
				t.Errorf("A process that is gone is counted.\n-want, +got:\n%s", diff)
			}
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRewalkVisitsChangedProcesses(t *testing.T) {
	cases := map[string]struct {
		reason  string
		comm    string
		cmdline string
		clean   bool
		want    int
	}{
		"Unchanged":       {"A clean process needs no second visit.", "bash\n", "bash\x00", true, 0},
		"ExecInPlace":     {"Exec keeps PID and start time; the arguments differ.", "bash\n", "java\x00", true, 1},
		"Renamed":         {"A new name may match.", "java\n", "bash\x00", true, 1},
		"NotClean":        {"A process that matched is visited every time.", "bash\n", "bash\x00", false, 1},
		"BeyondTheBuffer": {"The part beyond the buffer may have changed.", "bash\n", strings.Repeat("x", 20<<10), true, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			first := "bash\x00"
			if name == "BeyondTheBuffer" {
				first = tc.cmdline
			}
			comm, cmdline := file("bash\n"), file(first)
			table := process.Patient(process.FromFS(fstest.MapFS{"5/comm": comm, "5/cmdline": cmdline}, 0))
			visits := 0
			visit := func(*process.Process) bool { visits++; return tc.clean }
			if _, err := table.Rewalk(visit); err != nil || visits != 1 {
				t.Fatalf("first walk: %d visits, error %v", visits, err)
			}
			// An open file of a MapFS shows the change, as in /proc.
			comm.Data, cmdline.Data = []byte(tc.comm), []byte(tc.cmdline)
			visits = 0
			if _, err := table.Rewalk(visit); err != nil || visits != tc.want {
				t.Errorf("%s\nsecond walk: %d visits, want %d (error %v)", tc.reason, visits, tc.want, err)
			}
		})
	}
}

// TestArgumentsOfAThread: the first thread of a process has ended, so that the process' own files have no arguments.
func TestArgumentsOfAThread(t *testing.T) {
	const others = " 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 3 0 777 0 0\n"
	long := "java\x00" + strings.Repeat("x", 40<<10) + "\x00"
	proc := fstest.MapFS{
		"5/comm": file("x\n"), "5/cmdline": file(""), "5/stat": file("5 (x) Z" + others),
		"5/task/5/cmdline": file(""), "5/task/6/cmdline": file(long),
		"7/comm": file("zombie\n"), "7/cmdline": file(""), "7/stat": file("7 (zombie) Z" + statTail), "7/task/7/cmdline": file("not read"),
		"8/comm": file("kthread\n"), "8/cmdline": file(""), "8/stat": file("8 (kthread) S" + statTail), "8/task/8/cmdline": file("not read"),
		"9/comm": file("ends\n"), "9/cmdline": file(""), "9/stat": file("9 (ends) Z" + others), "9/task/9/cmdline": file(""),
	}
	want := []seen{{5, "x", long}, {7, "zombie", ""}, {8, "kthread", ""}, {9, "ends", ""}}
	for name, walk := range map[string]func(*process.Table, process.Visit) (process.WalkResult, error){
		"Walk": (*process.Table).Walk, "Rewalk": (*process.Table).Rewalk,
	} {
		table := process.Patient(process.FromFS(proc, 0))
		var got []seen
		_, err := walk(table, collect(t, &got))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v: -want, +got:\n%s", name, err, diff)
		}
	}
}

// counting counts the open files of processes.
type counting struct {
	fstest.MapFS
	open *int
}

type counted struct {
	fs.File
	open *int
}

func (c counting) Open(name string) (fs.File, error) {
	f, err := c.MapFS.Open(name)
	if err != nil || !strings.Contains(name, "/") {
		return f, err
	}
	*c.open++
	return counted{f, c.open}, nil
}

func (c counted) ReadAt(b []byte, off int64) (int, error) { return c.File.(io.ReaderAt).ReadAt(b, off) }

func (c counted) Close() error { *c.open--; return c.File.Close() }

func TestRewalkClosesFilesOfEndedProcesses(t *testing.T) {
	open := 0
	proc := counting{fstest.MapFS{"5/comm": file("bash\n"), "5/cmdline": file("bash\x00")}, &open}
	table := process.Patient(process.FromFS(proc, 0))
	walk := func() {
		t.Helper()
		if _, err := table.Rewalk(func(*process.Process) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	if walk(); open == 0 {
		t.Fatal("No file stays open, so this test checks nothing")
	}
	clear(proc.MapFS)
	if walk(); open != 0 {
		t.Errorf("%d files of processes that are gone stay open", open)
	}
}

// dying fails reads as /proc does if a process ends after the open.
type dying struct{ fstest.MapFS }

type dead struct{ fs.File }

func (d dying) Open(name string) (fs.File, error) {
	f, err := d.MapFS.Open(name)
	if err == nil && strings.HasSuffix(name, "/comm") {
		return dead{f}, nil
	}
	return f, err
}

func (dead) Read([]byte) (int, error) { return 0, syscall.ESRCH }

func TestVisitPIDOfAnEndedProcess(t *testing.T) {
	cases := map[string]struct {
		reason string
		proc   fs.FS
	}{
		"NoSuchFile":    {"It exited before the open.", fstest.MapFS{}},
		"NoSuchProcess": {"It exited between open and read.", dying{fstest.MapFS{"5/comm": file("x")}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := process.Patient(process.FromFS(tc.proc, 0)).VisitPID(5, func(*process.Process) bool { t.Error("visited"); return true })
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s\nVisitPID(5) = %v, want fs.ErrNotExist", tc.reason, err)
			}
		})
	}
}

func TestInfo(t *testing.T) {
	cases := map[string]struct {
		reason string
		proc   fstest.MapFS
		want   process.Info
		gone   bool
	}{
		"Owner": {
			reason: "A login session is the owner's.",
			proc:   fstest.MapFS{"5/stat": file("5 (java) S" + statTail), "5/cgroup": file("0::/user.slice/user-1000.slice/session-3.scope\n")},
			want:   process.Info{Start: 777},
		},
		"Pod": {
			reason: "A workload must not eject its own node.",
			proc:   fstest.MapFS{"5/stat": file("5 (java) S" + statTail), "5/cgroup": file("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ab.scope\n")},
			want:   process.Info{Start: 777, Contained: true},
		},
		"Zombie": {
			reason: "It has ended and only waits for its parent.",
			proc:   fstest.MapFS{"5/stat": file("5 (java) Z" + statTail), "5/comm": file("java\n")},
			gone:   true,
		},
		"LeaderEnded": {
			reason: "The process lives while a thread does.",
			proc:   fstest.MapFS{"5/stat": file("5 (java) Z 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 9 0 777 0 0\n")},
			want:   process.Info{Start: 777},
		},
		"HostileName": {
			reason: "A name may hold anything, also what looks like the end of a name.",
			proc:   fstest.MapFS{"5/stat": file("5 (a) Z 1 (b) S" + statTail)},
			want:   process.Info{Start: 777},
		},
		"NoCgroupNoStat": {
			reason: "Without other files, the name proves that the process lives.",
			proc:   fstest.MapFS{"5/comm": file("java\n")},
		},
		"Gone": {reason: "Nothing is left.", proc: fstest.MapFS{}, gone: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := process.FromFS(tc.proc, 0).Info(5)
			if tc.gone != errors.Is(err, fs.ErrNotExist) || (err != nil && !tc.gone) {
				t.Fatalf("%s\nInfo(5): error %v, want gone %v", tc.reason, err, tc.gone)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nInfo(5): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// parented is a process of a tree: its parent, its name, and its user.
type parented struct {
	parent    int
	comm, uid string
}

func tree(processes map[int]parented) fstest.MapFS {
	m := fstest.MapFS{}
	for pid, p := range processes {
		dir := strconv.Itoa(pid)
		m[dir+"/comm"] = file(p.comm + "\n")
		m[dir+"/stat"] = file(dir + " (" + p.comm + ") S " + strconv.Itoa(p.parent) + strings.TrimPrefix(statTail, " 1"))
		m[dir+"/cgroup"] = file("0::/\n")
		m[dir+"/status"] = file("Name:\t" + p.comm + "\nUid:\t" + strings.ReplaceAll(p.uid, " ", "\t") + "\n")
	}
	return m
}

func TestInfoByAncestors(t *testing.T) {
	const root, jane = "0 0 0 0", "1000 1000 1000 1000"
	init := parented{0, "systemd", root}
	cases := map[string]struct {
		reason string
		tree   map[int]parented
		want   bool
	}{
		"OwnersMount": {
			reason: "A mount of the owner counts.",
			tree:   map[int]parented{1: init, 2: {1, "sshd", root}, 3: {2, "bash", jane}, 5: {3, "mount", root}},
		},
		"KubeletsMount": {
			reason: "A pod chooses the name of its volume.",
			tree:   map[int]parented{1: init, 2: {1, "kubelet", root}, 5: {2, "mount", root}},
			want:   true,
		},
		"MountInAScope": {
			reason: "The kubelet has systemd put it elsewhere; it stays a child.",
			tree:   map[int]parented{1: init, 2: {1, "kubelet", root}, 3: {2, "systemd-run", root}, 5: {3, "mount", root}},
			want:   true,
		},
		"KubeletItself": {
			reason: "The kubelet itself does not count.",
			tree:   map[int]parented{1: init, 5: {1, "kubelet", root}},
			want:   true,
		},
		"NetworkPlugin": {
			reason: "Its arguments have the pod's name.",
			tree:   map[int]parented{1: init, 2: {1, "containerd", root}, 3: {2, "portmap", root}, 5: {3, "iptables", root}},
			want:   true,
		},
		"Shim": {
			reason: "The shim outlives the runtime.",
			tree:   map[int]parented{1: init, 2: {1, "containerd-shim", root}, 5: {2, "runc", root}},
			want:   true,
		},
		"Conmon": {
			reason: "Its arguments have the name of the pod's container.",
			tree:   map[int]parented{1: init, 5: {1, "conmon", root}},
			want:   true,
		},
		"OwnersConmon": {
			reason: "Containers that the owner runs without the administrator are the owner's.",
			tree:   map[int]parented{1: init, 2: {1, "conmon", jane}, 5: {2, "java", jane}},
		},
		"NamedLikeAKubelet": {
			reason: "Any user may give a program that name.",
			tree:   map[int]parented{1: init, 2: {1, "kubelet", jane}, 5: {2, "java", jane}},
		},
		"SetUserID": {
			reason: "A set-user-ID program has the user as its real one.",
			tree:   map[int]parented{1: init, 2: {1, "kubelet", "1000 0 0 0"}, 5: {2, "java", jane}},
		},
		"GivenUpRoot": {
			reason: "A program that root started and that runs as another user is not a kubelet.",
			tree:   map[int]parented{1: init, 2: {1, "kubelet", "0 1000 0 0"}, 5: {2, "java", jane}},
		},
		"Kernel": {
			reason: "The kernel starts a program for a core dump, with the name of the program that crashed.",
			tree:   map[int]parented{2: {0, "kthreadd", root}, 5: {2, "apport", root}},
			want:   true,
		},
		"Loop": {
			reason: "A reused PID may form a loop.",
			tree:   map[int]parented{2: {5, "a", root}, 5: {2, "b", root}},
		},
		"ParentGone": {
			reason: "The ancestors are unknown; those of a helper of the kubelet do not end that often.",
			tree:   map[int]parented{5: {2, "java", jane}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := process.FromFS(tree(tc.tree), 0).Info(5)
			if err != nil || got.Contained != tc.want {
				t.Errorf("%s\nInfo(5) = %+v, %v, want contained %v", tc.reason, got, err, tc.want)
			}
		})
	}
}

// orphaning is a tree in which the parent of process 5 ends during a read, several times. The next parent adopts
// process 5.
type orphaning struct {
	fstest.MapFS
	ends int
}

func (o *orphaning) Open(name string) (fs.File, error) {
	pid, file, _ := strings.Cut(name, "/")
	if parent, _ := strconv.Atoi(pid); file == "stat" && parent >= 10 && parent < 10+o.ends {
		maps.Copy(o.MapFS, tree(map[int]parented{5: {parent + 1, "java", "0 0 0 0"}}))
		return nil, fs.ErrNotExist
	}
	return o.MapFS.Open(name)
}

// TestInfoWithEndingAncestors: the parent of a helper of the kubelet ends during the check, and the kubelet becomes
// the parent.
func TestInfoWithEndingAncestors(t *testing.T) {
	for ends, want := range map[int]bool{0: true, 1: true, 2: true, 3: false} {
		m := tree(map[int]parented{
			1: {0, "systemd", "0 0 0 0"}, 5: {10, "java", "0 0 0 0"}, 10 + ends: {1, "kubelet", "0 0 0 0"},
		})
		got, err := process.FromFS(&orphaning{m, ends}, 0).Info(5)
		if err != nil || got.Contained != want {
			t.Errorf("%d ancestors end: Info(5) = %+v, %v, want contained %v", ends, got, err, want)
		}
	}
}

func TestMalformedStatIsAnError(t *testing.T) {
	proc := fstest.MapFS{"5/comm": file("java\n"), "5/stat": file("5 (java) S 1")}
	if _, err := process.FromFS(proc, 0).Info(5); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Info(5) = %v, want an error that is not fs.ErrNotExist", err)
	}
}

func TestOpenWithoutProc(t *testing.T) {
	if _, err := process.Open(t.TempDir() + "/missing"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("Open = %v, want fs.ErrNotExist that names the path", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAppendPIDs(t *testing.T) {
	dir := t.TempDir()
	proc := fstest.MapFS{}
	for _, name := range []string{"1", "22", "4194304", "self", "007", "x1"} {
		proc[name+"/comm"] = &fstest.MapFile{Data: []byte("x\n")}
	}
	if err := os.CopyFS(dir, proc); err != nil {
		t.Fatal(err)
	}
	table, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	for range 2 {
		got, err := table.root.pids(nil)
		if diff := cmp.Diff([]int32{1, 22, 4194304}, got); diff != "" || err != nil {
			t.Errorf("Only pids, in order, every time. Error %v: -want, +got:\n%s", err, diff)
		}
	}
}

func FuzzAppendPIDs(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x0442\x00\x00\x00"))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(_ *testing.T, buf []byte) { appendPIDs(nil, buf) })
}

func TestHidingOptions(t *testing.T) {
	const mounts = `22 27 0:21 / /proc rw,relatime shared:5 - proc none rw,gid=4321,hidepid=invisible
23 27 0:22 / /host/proc ro - proc none rw
24 27 0:23 / /old rw master:1 - proc none rw,hidepid=2
25 27 0:24 / /odd rw - proc
x
`
	for device, want := range map[string]string{"0:21": "gid=4321,hidepid=invisible", "0:22": "", "0:23": "hidepid=2", "0:24": "", "8:1": ""} {
		if got := hidingOptions(mounts, device); got != want {
			t.Errorf("hidingOptions(%s) = %q, want %q", device, got, want)
		}
	}
}

// TestIntegrationSelfAndExec reads the real /proc. It does not visit this process, visits a child, and visits a child
// again after it executes another program.
func TestIntegrationSelfAndExec(t *testing.T) {
	table, err := Open("/proc")
	if err != nil {
		t.Skipf("no /proc to read: %v", err)
	}
	defer table.Close()
	table = Patient(table)
	if table.Self() != os.Getpid() {
		t.Errorf("Self() = %d, want %d", table.Self(), os.Getpid())
	}
	cmd := exec.Command("sh", "-c", "read line; exec sleep 60")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no sh to start: %v", err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	visits := map[int]string{}
	visit := func(p *Process) bool { visits[p.PID()] = string(p.Comm()); return true }
	walk := func() {
		t.Helper()
		clear(visits)
		if _, err := table.Rewalk(visit); err != nil {
			t.Fatal(err)
		}
	}
	if walk(); visits[cmd.Process.Pid] == "" || visits[os.Getpid()] != "" {
		t.Errorf("first walk: the child is %q, we are %q", visits[cmd.Process.Pid], visits[os.Getpid()])
	}
	if walk(); visits[cmd.Process.Pid] != "" {
		t.Error("an unchanged child is visited again")
	}
	if _, err := fmt.Fprintln(in, "go"); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(10 * time.Second); visits[cmd.Process.Pid] != "sleep"; walk() {
		if time.Now().After(limit) {
			t.Fatal("the child that became sleep is not visited again")
		}
	}
	s, err := table.Info(cmd.Process.Pid)
	if err != nil || s.Start == 0 {
		t.Errorf("Info of the child = %+v, error %v", s, err)
	}
}

func TestIntegrationWalksDoNotAllocatePerProcess(t *testing.T) {
	table, err := Open("/proc")
	if err != nil {
		t.Skipf("no /proc to read: %v", err)
	}
	defer table.Close()
	table = Patient(table)
	visit := func(p *Process) bool { _ = p.Argv(nowhere{}); return true }
	for name, walk := range map[string]func(Visit) (WalkResult, error){"Walk": table.Walk, "Rewalk": table.Rewalk} {
		var census WalkResult
		got := testing.AllocsPerRun(20, func() { census, _ = walk(visit) })
		if got > 4 {
			t.Errorf("%s of %d processes allocates %v times", name, census.Processes, got)
		}
	}
}

type nowhere struct{}

func (nowhere) Feed([]byte) {}

// BenchmarkWalk compares Walk with the simple implementation, on the existing processes.
func BenchmarkWalk(b *testing.B) {
	table, err := Open("/proc")
	if err != nil {
		b.Skip(err)
	}
	defer table.Close()
	visit := func(p *Process) bool { _ = p.Argv(nowhere{}); return true }
	b.Run("Walk", func(b *testing.B) {
		for b.Loop() {
			_, _ = table.Walk(visit)
		}
	})
	b.Run("Rewalk", func(b *testing.B) {
		for b.Loop() {
			_, _ = table.Rewalk(visit)
		}
	})
	b.Run("naive", func(b *testing.B) {
		for b.Loop() {
			entries, _ := os.ReadDir("/proc")
			for _, e := range entries {
				_, _ = os.ReadFile("/proc/" + e.Name() + "/comm")
				_, _ = os.ReadFile("/proc/" + e.Name() + "/cmdline")
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// TestMain makes this test binary a warden, too: launch executes its own program.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "node" {
		if err := Warden(os.Args[2], os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestProgramThatEndsIsHeard(t *testing.T) {
	eachVersion(t, func(t *testing.T, version infrav1.CgroupVersion) {
		t.Helper()
		s, n := startNode(t, version, "cat /proc/self/cgroup; ls -d /sys/fs/cgroup/*; echo that is the reason >&2; exit 7")
		<-n.ended
		for _, want := range []string{"containerd ended: exit status 7", "that is the reason", s.log(containerd)} {
			if !strings.Contains(n.out.String(), want) {
				t.Errorf("the error must have %q:\n%s", want, n.out)
			}
		}
		kept, err := os.ReadFile(s.log(containerd))
		if err != nil || !strings.Contains(string(kept), "that is the reason") {
			t.Errorf("the log must be kept: %v: %s", err, kept)
		}
		sees := strings.Contains(string(kept), "\n0::/node\n") && strings.Contains(string(kept), "\n"+ownGroup+"\n")
		if sees != (version == infrav1.CgroupV2) {
			t.Errorf("a node of version 2, and no other, sees one group as the root of all:\n%s", kept)
		}
		wantNoTraces(t, s.Dir)
	})
}

// TestNodeSetsCopiesOfTheKernelsSettings has a program that writes all settings that a kubelet writes.
func TestNodeSetsCopiesOfTheKernelsSettings(t *testing.T) {
	eachVersion(t, func(t *testing.T, version infrav1.CgroupVersion) {
		t.Helper()
		before, script := settings(t), "set -e\n"
		for name, value := range before {
			script += fmt.Sprintf("echo 1%s >/proc/sys/%[2]s; [ $(cat /proc/sys/%[2]s) = 1%[1]s ]\n", value, name)
		}
		_, n := startNode(t, version, script+"exit 7")
		<-n.ended
		if !strings.Contains(n.out.String(), "exit status 7") {
			t.Errorf("the node must see what it sets: %s", n.out)
		}
		if after := settings(t); !maps.Equal(after, before) {
			t.Errorf("settings of the machine were %v and are %v", before, after)
			for name, value := range before {
				_ = os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o600)
			}
		}
	})
}

func settings(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, name := range kernelSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err == nil {
			values[name] = strings.TrimSpace(string(value))
		}
	}
	return values
}

// TestNothingIsRemovedThroughAMount has another user's files mounted below a node's directory.
func TestNothingIsRemovedThroughAMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	theirs, dir := t.TempDir(), t.TempDir()
	file, below := filepath.Join(theirs, "file"), filepath.Join(dir, "with space")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(below, 0o700), syscall.Mount(theirs, below, "", syscall.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	err := remove(dir, nil)
	if _, gone := os.Stat(file); gone != nil || err == nil || !strings.Contains(err.Error(), below) {
		t.Errorf("remove = %v, and the file: %v", err, gone)
	}
	if err := syscall.Unmount(below, 0); err != nil {
		t.Fatal(err)
	}
	if err := remove(dir, nil); err != nil {
		t.Errorf("once it is unmounted: %v", err)
	}
}

func TestNodeOfKilledWardenIsSwept(t *testing.T) {
	eachVersion(t, func(t *testing.T, version infrav1.CgroupVersion) {
		t.Helper()
		// A shim does not notice the end of its runtime.
		s, n := startNode(t, version, `$bin/containerd-shim-runc-v2 -c "echo up; read x <$bin/fifo" shim $dir/`+containerdSocket+" & wait")
		waitUp(t, s)
		if err := sweep(); err != nil {
			t.Fatal(err)
		}
		below := Below(os.Getpid())
		if len(below) != 3 || !below[2].Alive() {
			t.Fatalf("a node that has its warden must be left alone: %+v", below)
		}
		if err := syscall.Kill(below[0].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-n.ended
		if _, err := os.Stat(s.Dir); err != nil || !below[2].Alive() {
			t.Fatalf("this test needs something to sweep: %v", err)
		}
		if err := sweep(); err != nil {
			t.Fatal(err)
		}
		for _, p := range below {
			// A killed process loses its arguments, by which sweep finds it, before it has ended.
			for try := 0; p.Alive() && try < killTries; try++ {
				<-time.After(killPause)
			}
			if p.Alive() {
				t.Errorf("%s must have ended", p.Name)
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
			}
		}
		wantNoTraces(t, s.Dir)
	})
}

func TestProgramThatNeverAnswersIsHeard(t *testing.T) {
	s := Spec{Log: filepath.Join(t.TempDir(), "box")}
	if err := os.WriteFile(s.log(kubelet), []byte(strings.Repeat("a line\n", 1000)+"that is the reason\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.await(ctx, nil, kubelet, func() error { return errors.New("no answer") })
	for _, want := range []string{"kubelet is not ready", "no answer", "that is the reason", s.log(kubelet)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error must have %q: %v", want, err)
		}
	}
	if len(err.Error()) > 5<<10 {
		t.Errorf("an error is for people to read, and this one has %d bytes", len(err.Error()))
	}
}

func TestSweepLeavesWhatIsNotItsOwn(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, specFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(os.TempDir(), "plane-rn-link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	starting := filepath.Join(os.TempDir(), "plane-rn-starting")
	if err := os.Mkdir(starting, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{elsewhere, link, starting} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}

// eachVersion runs a test with each version of control groups that is possible here.
func eachVersion(t *testing.T, test func(*testing.T, infrav1.CgroupVersion)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real nodes need root")
	}
	for _, version := range []infrav1.CgroupVersion{infrav1.CgroupV1, infrav1.CgroupV2} {
		t.Run(string(version), func(t *testing.T) {
			if err := SupportedCgroups(version); err != nil {
				t.Skip(err)
			}
			test(t, version)
		})
	}
}

// startNode starts a node whose containerd is a script. $dir is its directory. $bin is the directory of its programs,
// which also has a pipe without a writer.
func startNode(t *testing.T, version infrav1.CgroupVersion, script string) (Spec, *node) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := os.MkdirTemp("", dirPattern) //nolint:usetesting // by this name it is found
	must(err)
	mounts, err := readCgroupMounts()
	must(err)
	s := Spec{Dir: dir, Bin: bin, Cgroups: version, Unified: mounts.unified, Log: filepath.Join(bin, "box")}
	head := fmt.Sprintf("#!/bin/sh\nbin=%s dir=%s\n", bin, dir)
	must(os.WriteFile(filepath.Join(bin, containerd), []byte(head+script+"\n"), 0o700))
	must(syscall.Mkfifo(filepath.Join(bin, "fifo"), 0o600))
	sh, err := exec.LookPath("sh")
	must(err)
	must(os.Symlink(sh, filepath.Join(bin, "containerd-shim-runc-v2")))
	locked, err := lock(dir)
	must(err)
	defer func() { must(locked.Close()) }()
	must(s.write())
	n, err := launch(dir, locked)
	must(err)
	t.Cleanup(func() {
		_ = n.stdin.Close()
		<-n.ended
	})
	return s, n
}

// waitUp waits until the script of a node reports that it runs.
func waitUp(t *testing.T, s Spec) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := await.Until(ctx, func(context.Context) error {
		text, err := os.ReadFile(s.log(containerd))
		if err == nil && !strings.Contains(string(text), "up\n") {
			err = fmt.Errorf("it says %q", text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantNoTraces(t *testing.T, dir string) {
	t.Helper()
	mounts, err := readCgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(mounts.groups(dir), dir) {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s must be gone: %v", path, err)
		}
	}
}

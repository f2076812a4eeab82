// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procevents_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
)

func dial(t *testing.T) *procevents.Conn {
	t.Helper()
	return dialWith(t, procevents.Options{Now: time.Now})
}

func dialWith(t *testing.T, o procevents.Options) *procevents.Conn {
	t.Helper()
	c, err := procevents.Dial(o)
	if errors.Is(err, procevents.ErrUnavailable) {
		t.Skipf("no proc connector here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// program copies sleep under a unique name.
func program(t *testing.T, name string) string {
	t.Helper()
	from, err := exec.LookPath("sleep")
	if err != nil {
		t.Skipf("no program to copy: %v", err)
	}
	if from, err = filepath.EvalSymlinks(from); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(t.TempDir(), name)
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func await(t *testing.T, c *procevents.Conn, wanted func(e *procevents.Event) bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		events, err := c.Next(deadline)
		if err != nil && !errors.Is(err, procevents.ErrOverrun) {
			t.Fatal(err)
		}
		for i := range events {
			if wanted(&events[i]) {
				return
			}
		}
	}
	t.Error("the kernel announced nothing of the kind within 10 s")
}

func TestIntegrationExecIsAnnounced(t *testing.T) {
	for name, unfiltered := range map[string]bool{"Filtered": false, "Unfiltered": true} {
		t.Run(name, func(t *testing.T) {
			execIsAnnounced(t, dialWith(t, procevents.Options{Now: time.Now, Unfiltered: unfiltered}))
		})
	}
}

func execIsAnnounced(t *testing.T, c *procevents.Conn) {
	t.Helper()
	cmd := exec.Command(program(t, "5spot-ev"), "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	await(t, c, func(e *procevents.Event) bool {
		return e.Kind == procevents.Exec && e.TGID == cmd.Process.Pid
	})
}

func TestIntegrationRenameIsAnnounced(t *testing.T) {
	c := dial(t)
	cmd := exec.Command("sh", "-c", "printf 5spot-renamed > /proc/$$/comm; read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no sh to start: %v", err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	await(t, c, func(e *procevents.Event) bool {
		return e.Kind == procevents.Comm && e.TGID == cmd.Process.Pid && string(e.Comm()) == "5spot-renamed"
	})
}

// TestIntegrationOverrun overflows the buffer. It expects one ErrOverrun, and events after that.
func TestIntegrationOverrun(t *testing.T) {
	c := dial(t)
	if err := procevents.Shrink(c, 4096); err != nil {
		t.Fatal(err)
	}
	path := program(t, "5spot-or")
	for range 40 {
		if err := exec.Command(path, "0").Run(); err != nil {
			t.Fatal(err)
		}
	}
	var errs []error
	for deadline := time.Now().Add(5 * time.Second); len(errs) == 0 && time.Now().Before(deadline); {
		if _, err := c.Next(time.Now()); err != nil {
			errs = append(errs, err)
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, procevents.ErrOverrun) }) {
		t.Fatalf("Next() = %v, want ErrOverrun", errs)
	}
	cmd := exec.Command(path, "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	await(t, c, func(e *procevents.Event) bool { return e.TGID == cmd.Process.Pid })
}

func TestIntegrationCloseUnblocks(t *testing.T) {
	c := dial(t)
	done := make(chan error)
	go func() {
		for {
			if _, err := c.Next(time.Now().Add(time.Hour)); err != nil {
				done <- err
				return
			}
		}
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; errors.Is(err, procevents.ErrSilent) || errors.Is(err, procevents.ErrOverrun) {
		t.Errorf("Next() = %v, want that the socket is closed", err)
	}
}

// TestIntegrationNamespaces runs this test in separate namespaces, in which the kernel does not answer. It expects an
// error with the reason.
func TestIntegrationNamespaces(t *testing.T) {
	if want := os.Getenv("PROCEVENTS_WANT"); want != "" {
		_, err := procevents.Dial(procevents.Options{Now: time.Now})
		if !errors.Is(err, procevents.ErrUnavailable) {
			t.Fatalf("Dial() = %v, want ErrUnavailable", err)
		}
		if _, err := os.Stdout.WriteString("REASON " + err.Error() + "\n"); err != nil {
			t.Fatal(err)
		}
		return
	}
	dial(t)
	cases := map[string]struct {
		flags uintptr
		want  string
	}{
		"Network": {unix.CLONE_NEWNET, "hostNetwork: true"},
		"PID":     {unix.CLONE_NEWPID, "hostPID: true"},
		"User":    {unix.CLONE_NEWUSER, "hostUsers: true"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestIntegrationNamespaces$")
			cmd.Env = append(os.Environ(), "PROCEVENTS_WANT="+tc.want)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: tc.flags}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
				t.Skipf("no such namespace to be had: %v", err)
			}
			if err != nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("error %v, want a reason with %q:\n%s", err, tc.want, out)
			}
		})
	}
}

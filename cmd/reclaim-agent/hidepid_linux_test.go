// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The stages of this test binary. One mounts /proc and starts the other. That one drops its permissions and executes
// the program.
const (
	stageVariable = "RECLAIM_AGENT_TEST_STAGE"
	stageMount    = "mount"
	stageDrop     = "drop"

	// sharedProc is the exit code if a mount of /proc shares its options with all others (before Linux 5.8), because
	// the test would change the machine's.
	sharedProc = 77
)

func init() {
	var err error
	switch os.Getenv(stageVariable) {
	case stageMount:
		err = mountAndRun(os.Args[1], os.Args[2], os.Args[3:])
	case stageDrop:
		err = dropAndBecome(os.Args[1], os.Args[2:])
	default:
		return
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "stage:", err)
	os.Exit(99)
}

// mountAndRun mounts /proc at dir and runs a program. It mounts again with each line of standard input as the options.
func mountAndRun(dir, options string, program []string) error {
	runtime.LockOSThread() // Pdeathsig refers to the thread.
	if err := unix.Mount("proc", dir, "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting proc: %w", err)
	}
	var theirs, ours unix.Stat_t
	if err := errors.Join(unix.Stat("/proc", &theirs), unix.Stat(dir, &ours)); err != nil {
		return err
	}
	if theirs.Dev == ours.Dev {
		os.Exit(sharedProc)
	}
	remount := func(options string) error { return unix.Mount("proc", dir, "proc", unix.MS_REMOUNT, options) }
	if err := remount(options); err != nil {
		return fmt.Errorf("mounting proc with %s: %w", options, err)
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if err := remount(lines.Text()); err != nil {
				fmt.Fprintln(os.Stderr, "stage: remounting:", err)
			}
		}
	}()
	cmd := exec.Command("/proc/self/exe", program...)
	cmd.Env = append(os.Environ(), stageVariable+"="+stageDrop)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if err == nil {
		os.Exit(0)
	}
	return err
}

// rights are the user and groups of a process, and whether it has all capabilities or only NET_ADMIN.
type rights struct {
	UID, GID int
	Groups   []int
	All      bool
}

// dropAndBecome sets the given rights and executes a program.
func dropAndBecome(encoded string, program []string) error {
	var r rights
	var further int
	if _, err := fmt.Sscanf(encoded, "%d,%d,%d,%t", &r.UID, &r.GID, &further, &r.All); err != nil {
		return err
	}
	if further != 0 {
		r.Groups = []int{further}
	}
	runtime.LockOSThread()
	if err := syscall.Setgroups(r.Groups); err != nil {
		return err
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP && !r.All; c++ {
		if c != unix.CAP_NET_ADMIN {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	if err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), syscall.Setresgid(r.GID, r.GID, r.GID), syscall.Setresuid(r.UID, r.UID, r.UID)); err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, stageVariable) })
	return syscall.Exec(program[0], program, env)
}

func (r rights) encode() string {
	further := 0
	if len(r.Groups) > 0 {
		further = r.Groups[0]
	}
	return fmt.Sprintf("%d,%d,%d,%t", r.UID, r.GID, further, r.All)
}

// hidden returns the command for the agent in a mount namespace whose /proc has the options.
func hidden(t *testing.T, options string, r rights, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting /proc takes root")
	}
	dir := t.TempDir()
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "PROC", dir)
	}
	program := binary(t)
	open(t, filepath.Dir(program))
	open(t, dir)
	cmd := exec.Command("/proc/self/exe", append([]string{dir, options, r.encode(), program}, args...)...)
	cmd.Env = append(os.Environ(), stageVariable+"="+stageMount)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

// open makes a directory of the test accessible to other users.
func open(t *testing.T, dir string) {
	t.Helper()
	for ; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// owners starts a program of a user other than root.
func owners(t *testing.T) (name string) {
	t.Helper()
	path, name := sleeper(t)
	open(t, filepath.Dir(path))
	start(t, path)
	return name
}

func start(t *testing.T, path string) {
	t.Helper()
	cmd := exec.Command(path, "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
	if err := cmd.Start(); err != nil {
		t.Skipf("no program of another user: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestIntegrationHidepid runs the agent with a program of another user, on a real /proc with every combination of
// hidepid and gid. It must find the program, or report that it may be hidden. It must never report that there is none.
func TestIntegrationHidepid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting /proc takes root")
	}
	name := owners(t)
	file := filepath.Join(t.TempDir(), "reclaim.toml")
	open(t, filepath.Dir(file))
	if err := os.WriteFile(file, []byte(fmt.Sprintf("match_commands = [%q]", name)), 0o644); err != nil {
		t.Fatal(err)
	}
	daemonSet := rights{}
	member := rights{Groups: []int{4321}}
	polling := rights{UID: 65532}
	everything := rights{All: true}
	cases := []struct {
		hidepid string
		gid     string
		// finds are the rights with which the agent finds the program.
		finds []rights
	}{
		{"off", "", []rights{daemonSet, member, polling, everything}},
		{"off", "gid=4321", []rights{daemonSet, member, polling, everything}},
		{"noaccess", "", []rights{daemonSet, member, polling, everything}},
		{"noaccess", "gid=0", []rights{daemonSet, member, polling, everything}},
		{"noaccess", "gid=4321", []rights{member, everything}},
		{"invisible", "", []rights{daemonSet, member, polling, everything}},
		{"invisible", "gid=0", []rights{daemonSet, member, polling, everything}},
		{"invisible", "gid=4321", []rights{member, everything}},
		{"ptraceable", "", []rights{everything}},
		{"ptraceable", "gid=0", []rights{everything}},
		{"ptraceable", "gid=4321", []rights{everything}},
	}
	for _, tc := range cases {
		options := strings.TrimSuffix("hidepid="+tc.hidepid+","+tc.gid, ",")
		for _, r := range []rights{daemonSet, member, polling, everything} {
			t.Run(fmt.Sprintf("%s/%+v", options, r), func(t *testing.T) {
				out, err := hidden(t, options, r, "check", "--config="+file, "--proc-root=PROC").CombinedOutput()
				code := 0
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					code = exit.ExitCode()
				}
				if code == sharedProc {
					t.Skip("this kernel has one set of options for all mounts of /proc")
				}
				want, text := 2, "cannot be read"
				if slices.ContainsFunc(tc.finds, func(f rights) bool { return f.encode() == r.encode() }) {
					want, text = 0, name
				} else if !strings.Contains(string(out), "hidepid="+tc.hidepid) {
					t.Errorf("the options are not named:\n%s", out)
				}
				if r.All && code == 2 && strings.Contains(string(out), "reading process 1") {
					t.Skipf("a security module hides process 1 from every other process:\n%s", out)
				}
				if code != want || !strings.Contains(string(out), text) {
					t.Errorf("exit code %d, want %d with %q:\n%s", code, want, text, out)
				}
			})
		}
	}
}

// TestIntegrationBlind hides the processes of other users from an agent that runs as in the DaemonSet, and shows them
// again.
func TestIntegrationBlind(t *testing.T) {
	for _, detector := range []string{"auto", "poll"} {
		t.Run(detector, func(t *testing.T) {
			path, name := sleeper(t)
			open(t, filepath.Dir(path))
			a, flags := cluster(t, fmt.Sprintf("match_commands = [%q]", name), "0123")
			cmd := hidden(t, "hidepid=invisible,gid=4321", rights{},
				append(flags, "--detector="+detector, "--metrics-address=127.0.0.1:0", "--proc-root=PROC")...)
			l := &log{more: make(chan struct{}, 1)}
			cmd.Stderr = l
			options, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			l.await(t, "Watching processes")
			l.await(t, "gid=4321,hidepid=invisible")
			l.await(t, "address=127.0.0.1:") // The metrics server starts concurrently with the detector.
			base := "http://" + regexp.MustCompile(`address=(127\.0\.0\.1:\d+)`).FindStringSubmatch(l.String())[1]
			shows := func(ready bool, states string, meanwhile ...func()) {
				t.Helper()
				var answer, state string
				for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
					for _, f := range meanwhile {
						f()
					}
					answer = get(t, base+"/readyz")
					a.mu.Lock()
					state = a.noted["5spot.finos.org/reclaim-agent"]
					a.mu.Unlock()
					gauge := strings.Contains(get(t, base+"/metrics"), "\nfivespot_agent_blind "+map[bool]string{true: "0", false: "1"}[ready]+"\n")
					if (answer == "ok\n") == ready && regexp.MustCompile(states).MatchString(state) && gauge {
						return
					}
				}
				t.Fatalf("/readyz says %q and the Node %q, want ready %t and %s:\n%s", answer, state, ready, states, l)
			}
			remount := func(o string) {
				t.Helper()
				if _, err := io.WriteString(options, o+"\n"); err != nil {
					t.Fatal(err)
				}
			}
			shows(false, "^detector=blind ")
			remount("hidepid=off")
			shows(true, "^detector=(netlink|poll) ")
			remount("hidepid=ptraceable")
			if detector == "auto" { // A program that starts after the remount proves it.
				shows(false, "^detector=blind ", func() { start(t, "/bin/sleep") })
			} else {
				shows(false, "^detector=blind ")
			}
			start(t, path)
			remount("hidepid=invisible,gid=0")
			select {
			case <-a.changed:
			case <-time.After(20 * time.Second):
				t.Fatalf("the program that started while the agent was blind is not reported:\n%s", l)
			}
		})
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

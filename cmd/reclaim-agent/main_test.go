// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// build builds the agent as for a release.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "reclaim-agent")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "reclaim-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Skipf("no agent to run: %v", err)
	}
	return path
}

// TestDependencies limits the dependencies of the agent, because they use memory on a borrowed machine.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		for _, refused := range []string{
			"sigs.k8s.io/controller-runtime", "sigs.k8s.io/cluster-api", "k8s.io/client-go", "k8s.io/api",
			"k8s.io/apimachinery", "github.com/prometheus", "google.golang.org/protobuf",
		} {
			if dep == refused || strings.HasPrefix(dep, refused+"/") {
				t.Errorf("the agent links %s", dep)
			}
		}
	}
}

// api is the API server of one Node and one ConfigMap.
type api struct {
	mu      sync.Mutex
	toml    string
	id      string
	noted   map[string]string
	patches []string
	changed chan struct{}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	node := map[string]any{
		"metadata": map[string]any{"name": "ws", "uid": "u", "resourceVersion": "1", "annotations": a.noted},
		"status":   map[string]any{"nodeInfo": map[string]any{"machineID": a.id}},
	}
	configMap := map[string]any{"metadata": map[string]any{"name": "reclaim-agent-ws"}, "data": map[string]any{"reclaim.toml": a.toml}}
	switch {
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Content-Type") == "application/merge-patch+json" {
			merge := struct {
				Metadata struct{ Annotations map[string]string }
			}{}
			if json.Unmarshal(body, &merge) != nil {
				w.WriteHeader(http.StatusUnprocessableEntity)
				return
			}
			maps.Copy(a.noted, merge.Metadata.Annotations)
			answer(w, node)
			return
		}
		var ops []struct{ Op, Path, Value string }
		if json.Unmarshal(body, &ops) != nil || ops[0].Op != "test" || ops[0].Value != a.id {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		for _, op := range ops[1:] {
			key := strings.TrimPrefix(op.Path, "/metadata/annotations/")
			a.noted[strings.ReplaceAll(key, "~1", "/")] = op.Value
		}
		a.patches = append(a.patches, string(body))
		a.changed <- struct{}{}
		answer(w, node)
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		answer(w, node)
	case strings.HasSuffix(r.URL.Path, "/configmaps"):
		answer(w, map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{configMap}})
	default:
		answer(w, configMap)
	}
}

func answer(w io.Writer, object any) {
	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(err) // maps of strings have JSON
	}
}

// cluster starts an API server, and returns the agent's flags for it.
func cluster(t *testing.T, toml, id string) (*api, []string) {
	t.Helper()
	a := &api{toml: toml, id: id, noted: map[string]string{"kept": "kept"}, changed: make(chan struct{}, 10)}
	ts := httptest.NewServer(a)
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf("current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n", ts.URL)
	machineID := filepath.Join(dir, "machine-id")
	for path, text := range map[string]string{kubeconfig: text, machineID: "0123\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return a, []string{"--node-name=ws", "--kubeconfig=" + kubeconfig, "--machine-id-path=" + machineID}
}

// sleeper copies the program sleep under a unique name.
func sleeper(t *testing.T) (path, name string) {
	t.Helper()
	from, err := exec.LookPath("sleep")
	if err != nil || runtime.GOOS != "linux" {
		t.Skipf("no processes to scan: %v", err)
	}
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("5s-m-%d", os.Getpid())
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	return path, name
}

// patience is the timeout for actions that take milliseconds. On a busy machine the agent polls less often: twenty
// times the duration of a scan.
const patience = time.Minute

// log collects the output of the agent, and waits for a text in it.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *log) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.text.String() }

func (l *log) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(patience); !strings.Contains(l.String(), text); {
		select {
		case <-l.more:
		case <-deadline:
			t.Fatalf("the agent did not log %q within a minute:\n%s", text, l)
		}
	}
}

func agent(t *testing.T, args ...string) (*exec.Cmd, *log) {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	l := &log{more: make(chan struct{}, 1)}
	cmd.Stderr = l
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, l
}

func TestIntegrationWholeWay(t *testing.T) {
	for _, detector := range []string{"auto", "poll"} {
		t.Run(detector, func(t *testing.T) {
			path, name := sleeper(t)
			a, flags := cluster(t, fmt.Sprintf("match_commands = [%q]", name), "0123")
			cmd, l := agent(t, append(flags, "--detector="+detector, "--metrics-address=127.0.0.1:0")...)
			l.await(t, "Watching processes")
			owner := exec.Command(path, "60", "0.31337")
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
			select {
			case <-a.changed:
			case <-time.After(patience):
				t.Fatalf("no report within a minute:\n%s", l)
			}
			l.await(t, "Waiting until the request is cleared")
			a.mu.Lock()
			got := []string{a.noted["5spot.finos.org/reclaim-requested"], a.noted["5spot.finos.org/reclaim-reason"], a.noted["kept"]}
			n := len(a.patches)
			a.mu.Unlock()
			if diff := cmp.Diff([]string{"true", "process-match: " + name, "kept"}, got); diff != "" || n != 1 {
				t.Errorf("%d patches. annotations: -want, +got:\n%s", n, diff)
			}
			if strings.Contains(l.String(), "31337") {
				t.Error("arguments of a process were logged")
			}
			t.Logf("resident: %s", resident(t, cmd.Process.Pid))
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("after SIGTERM: %v\n%s", err, l)
			}
			if err := owner.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the owner's process was touched: %v", err)
			}
		})
	}
}

// TestPortInUseDoesNotStopTheAgent: a program of the owner uses the port of the metrics.
func TestPortInUseDoesNotStopTheAgent(t *testing.T) {
	theirs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	path, name := sleeper(t)
	owner := exec.Command(path, "60")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	a, flags := cluster(t, fmt.Sprintf("match_commands = [%q]", name), "0123")
	_, l := agent(t, append(flags, "--detector=poll", "--metrics-address="+theirs.Addr().String())...)
	select {
	case <-a.changed:
	case <-time.After(patience):
		t.Fatalf("no report within a minute:\n%s", l)
	}
	l.await(t, "Not serving metrics for now")
	_ = theirs.Close()
	l.await(t, "msg=\"Serving metrics\"")
	if n := strings.Count(l.String(), "Not serving metrics"); n != 1 {
		t.Errorf("it is logged %d times, want once:\n%s", n, l)
	}
}

func resident(t *testing.T, pid int) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rss, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rss)
		}
	}
	return "unknown"
}

func TestExitCodes(t *testing.T) {
	path, name := sleeper(t)
	mention := fmt.Sprintf("0.%d", os.Getpid())
	for _, seconds := range []string{"60", mention} {
		owner := exec.Command(path, seconds, "60")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	}
	toml := fmt.Sprintf("match_commands = [%q]", name)
	file, mentions := filepath.Join(t.TempDir(), "reclaim.toml"), filepath.Join(t.TempDir(), "mentions.toml")
	for file, toml := range map[string]string{file: toml, mentions: fmt.Sprintf("match_argv_substrings = [%q]", mention)} {
		if err := os.WriteFile(file, []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	empty := t.TempDir()
	if err := os.CopyFS(empty, fstest.MapFS{"1/comm": {Data: []byte("init\n")}, "1/cmdline": {}, "1/status": {}}); err != nil {
		t.Fatal(err)
	}
	_, good := cluster(t, toml, "0123")
	_, stranger := cluster(t, toml, "other")
	_, inert := cluster(t, "", "0123")
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		text   string
	}{
		"Help":           {"Help is no failure.", []string{"--help"}, 0, "--node-name"},
		"CheckHelp":      {"Help is no failure.", []string{"check", "-h"}, 0, "--config"},
		"UnknownFlag":    {"The error names the flag.", []string{"--nodename"}, 2, "--nodename"},
		"Argument":       {"The agent has no arguments.", append(good, "now"), 2, `unexpected argument "now"`},
		"NoNode":         {"It is required.", nil, 2, "NODE_NAME"},
		"NoPort":         {"The error names the flag.", append(good, "--metrics-address=9797"), 2, `--metrics-address is "9797"`},
		"NoCluster":      {"The error names the missing API server.", []string{"--node-name=ws", "--skip-host-id-check"}, 2, "not in a pod"},
		"Oneshot":        {"It reports what runs.", append(good, "--oneshot"), 0, "Requested the machine back"},
		"OneshotInert":   {"The configuration has no patterns.", append(inert, "--oneshot"), 1, "no patterns"},
		"AnotherMachine": {"Nothing is written.", append(stranger, "--detector=poll"), 3, `machine id \"other\"`},
		"Check":          {"It finds what runs.", []string{"check", "--config", file}, 0, fmt.Sprintf("program %q: its name is %q", name, name)},
		"CheckMentions":  {"The output has the reason, also for a program that only mentions a pattern.", []string{"check", "--config", mentions}, 0, fmt.Sprintf("program %q: its arguments contain %q", name, mention)},
		"CheckJSON":      {"One object per line.", []string{"check", "--config", file, "-o", "json"}, 0, fmt.Sprintf(`"program":%q,"pattern":%q,"source":"comm","reason":"process-match: %s"}`, name, name, name)},
		"CheckStdin":     {"A pod has no file with its configuration.", []string{"check", "--config=/dev/stdin"}, 0, name},
		"CheckNothing":   {"What does not match.", []string{"check", "--config", file, "--proc-root", empty}, 1, "no process matches"},
		"CheckBlind":     {"Where process 1 is hidden, others may be.", []string{"check", "--config", file, "--proc-root", t.TempDir()}, 2, "cannot be read"},
		"CheckNoRoot":    {"Where nothing is.", []string{"check", "--config", file, "--proc-root", "/missing/proc"}, 2, "/missing/proc"},
		"CheckNoConfig":  {"It is required.", []string{"check"}, 2, "--config"},
		"CheckOutput":    {"Only two forms.", []string{"check", "--config", file, "-o", "yaml"}, 2, "yaml"},
	}
	for test, tc := range cases {
		t.Run(test, func(t *testing.T) {
			cmd := exec.Command(binary(t), tc.args...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
			cmd.Stdin = strings.NewReader(toml)
			out, err := cmd.CombinedOutput()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != tc.code || !strings.Contains(string(out), tc.text) {
				t.Errorf("%s\nexit code %d, want %d with %q:\n%s", tc.reason, code, tc.code, tc.text, out)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package reclaimagent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold/cgrouptest"
)

// heldHost is a host with one pod, an agent that is a process of its own, and an API server.
type heldHost struct {
	*cgrouptest.Tree
	t    *testing.T
	toml string
	// requested means that the Node has a request, tainted that its controller has tainted it. away means that the server
	// accepts no write.
	requested, tainted, away atomic.Bool
	// early is set by a request that arrives before the pod is frozen. unblocked is set by a later attempt during which
	// the pod runs.
	early, arrived, unblocked atomic.Bool
	kubeconfig                string
	agent                     *exec.Cmd
}

// TestHeldHost runs the whole agent, with SIGTERM and SIGKILL.
func TestHeldHost(t *testing.T) {
	if kubeconfig := os.Getenv("HELD_KUBECONFIG"); kubeconfig != "" {
		runAgent(t, kubeconfig)
		return
	}
	h := newHeldHost(t)
	h.start()
	h.wait("the agent has started", func() bool { return h.logged("Watching processes") })
	h.away.Store(true)
	owner := h.Start("user.slice/app.scope", exec.Command("/bin/sh", "-c", "sleep 1000; :", h.pattern()))
	h.wait("the pod is frozen", h.frozen)
	h.wait("the request arrives", h.arrived.Load)
	if h.early.Load() {
		t.Error("the request arrived before the freeze")
	}
	h.wait("the pod runs during an attempt", h.unblocked.Load)
	h.wait("the pod is frozen after that attempt", h.frozen)
	h.end(syscall.SIGTERM)
	if h.frozen() {
		t.Error("the pod is frozen after SIGTERM without a request on the Node")
	}
	h.start()
	h.wait("the pod is frozen again", h.frozen)
	h.end(syscall.SIGKILL)
	if !h.frozen() {
		t.Error("the pod runs after SIGKILL")
	}
	h.requested.Store(true)
	h.start()
	h.wait("the new agent continues the hold", func() bool { return h.logged("Froze pods") })
	h.end(syscall.SIGTERM)
	if !h.frozen() {
		t.Error("the pod runs after SIGTERM with a request on the Node")
	}
	_ = owner.Process.Kill()
	_ = owner.Wait()
	h.requested.Store(false)
	h.start()
	h.wait("the new agent releases the pod", func() bool { return !h.frozen() })
	for _, cgroup := range []string{"user.slice/app.scope", "kubepods/podagent", "kubepods", ""} {
		if raw, err := os.ReadFile(filepath.Join(h.Root, cgroup, "cgroup.freeze")); err == nil && strings.TrimSpace(string(raw)) != "0" {
			t.Errorf("%q is frozen", cgroup)
		}
	}
	h.end(syscall.SIGTERM)
	h.tainted.Store(true)
	h.start()
	h.wait("the pod is frozen because of the taint", h.frozen)
	h.wait("the agent watches all the same", func() bool { return h.logged("Watching processes") })
	h.end(syscall.SIGTERM)
}

// TestAgentRemovedWithTheRequest has an agent that ends within seconds after its request was cleared: the manager removes
// the agent from a Node as soon as the request is gone, if the ScheduledMachine needs no agent any more. No other agent
// follows, so this one must release the pods.
func TestAgentRemovedWithTheRequest(t *testing.T) {
	for name, how := range map[string]func(h *heldHost, on bool){
		"Request": func(h *heldHost, on bool) { h.requested.Store(on) },
		"Taint":   func(h *heldHost, on bool) { h.tainted.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeldHost(t)
			how(h, true)
			h.start()
			h.wait("the pod is frozen", func() bool { return h.logged("Froze pods") && h.frozen() })
			how(h, false)
			h.end(syscall.SIGTERM)
			if h.frozen() {
				t.Error("the pod is frozen after the request was cleared and the agent has ended")
			}
		})
	}
}

// runAgent is the agent process.
func runAgent(t *testing.T, kubeconfig string) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	err := reclaimagent.Run(ctx, reclaimagent.Options{
		NodeName: "ws", ProcRoot: "/proc", CgroupRoot: os.Getenv("HELD_ROOT"), SkipHostIDCheck: true, Detector: "poll", Kubeconfig: kubeconfig,
	}, reclaimagent.Environment{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: time.Now, Getenv: os.Getenv})
	if reclaimagent.ExitCode(err) != reclaimagent.ExitOK {
		t.Error(err)
	}
}

func newHeldHost(t *testing.T) *heldHost {
	t.Helper()
	h := &heldHost{Tree: cgrouptest.New(t), t: t}
	h.Start("kubepods/besteffort/pod1/container", exec.Command("/bin/sleep", "1000"))
	h.toml = fmt.Sprintf("match_argv_substrings = [%q]\npoll_interval_ms = 20\nreclaim_hold = \"FreezeOnly\"\n", h.pattern())
	s := httptest.NewTLSServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	ca := filepath.Join(t.TempDir(), "ca.crt")
	h.kubeconfig = filepath.Join(filepath.Dir(ca), "kubeconfig")
	text := fmt.Sprintf(`{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority": %q}}], "users": [{"name": "u", "user": {}}]}`, s.URL, ca)
	for path, text := range map[string][]byte{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), h.kubeconfig: []byte(text)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *heldHost) pattern() string { return fmt.Sprintf("owner-of-%d", os.Getpid()) }

func (h *heldHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	configMap := map[string]any{
		"metadata": map[string]any{"name": "reclaim-agent-ws", "resourceVersion": "1"}, "data": map[string]any{"reclaim.toml": h.toml},
	}
	annotations := map[string]string{"kept": "kept"}
	if h.requested.Load() {
		annotations["5spot.finos.org/reclaim-requested"] = "true"
	}
	answer := configMap
	switch {
	case r.URL.Query().Get("watch") != "":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	case r.Method == http.MethodPatch:
		if bytes.Contains(body, []byte("reclaim-requested")) {
			h.attempt(r.Context())
		}
		if h.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fallthrough
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		answer = map[string]any{"metadata": map[string]any{"name": "ws", "uid": "u", "resourceVersion": "1", "annotations": annotations}}
		if h.tainted.Load() && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
			answer["spec"] = map[string]any{"taints": []any{map[string]any{"key": "5spot.finos.org/reclaimed-by-owner", "effect": "NoExecute"}}}
		}
	case strings.HasSuffix(r.URL.Path, "/configmaps"):
		answer = map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{configMap}}
	}
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // maps of strings have JSON
}

// attempt is an attempt of the agent to deliver the request. The first one fails at once. The others fail when the pod
// runs, and once that was seen, when the agent closes the connection.
func (h *heldHost) attempt(ctx context.Context) {
	if !h.arrived.Load() {
		h.early.Store(!h.frozen())
		h.arrived.Store(true)
		return
	}
	for waiting := !h.unblocked.Load(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if waiting && !h.frozen() {
			h.unblocked.Store(true)
			return
		}
	}
}

func (h *heldHost) start() {
	h.t.Helper()
	log, err := os.Create(filepath.Join(filepath.Dir(h.kubeconfig), "log"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	h.agent = exec.Command(os.Args[0], "-test.run=^TestHeldHost$", "-test.timeout=5m")
	h.agent.Env = append(os.Environ(), "HELD_KUBECONFIG="+h.kubeconfig, "HELD_ROOT="+h.Root)
	h.agent.Stderr = log
	h.Start("kubepods/podagent/container", h.agent)
}

func (h *heldHost) end(s syscall.Signal) {
	h.t.Helper()
	_ = h.agent.Process.Signal(s)
	if err := h.agent.Wait(); err != nil && s == syscall.SIGTERM {
		h.t.Errorf("the agent ended with %v", err)
	}
}

func (h *heldHost) logged(text string) bool {
	raw, _ := os.ReadFile(filepath.Join(filepath.Dir(h.kubeconfig), "log"))
	return bytes.Contains(raw, []byte(text))
}

// frozen reports whether the pod is frozen.
func (h *heldHost) frozen() bool {
	raw, err := os.ReadFile(filepath.Join(h.Root, "kubepods/besteffort/pod1/cgroup.freeze"))
	return err == nil && strings.TrimSpace(string(raw)) == "1"
}

func (h *heldHost) wait(what string, done func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			raw, _ := os.ReadFile(filepath.Join(filepath.Dir(h.kubeconfig), "log"))
			h.t.Fatalf("waited in vain until %s; the agent's log:\n%s", what, raw)
		}
	}
}

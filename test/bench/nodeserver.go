// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// A nodeServer is an API server with TLS and HTTP/2, with one Node and one ConfigMap. It counts requests, and stores
// nothing.
type nodeServer struct {
	*httptest.Server
	toml     string
	requests atomic.Int64
	// patched receives a value for every PATCH.
	patched chan struct{}
	// requested receives the time of the PATCH that requests the machine.
	requested chan time.Time
	// away aborts all requests.
	away atomic.Bool
}

const (
	nodeName  = "bench"
	machineID = "0123456789abcdef0123456789abcdef"
)

func newNodeServer(toml string) *nodeServer {
	s := &nodeServer{toml: toml, patched: make(chan struct{}, 1), requested: make(chan time.Time, 1)}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

func (s *nodeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if s.away.Load() {
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(r.Body)
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	configMap := map[string]any{
		"metadata": map[string]any{"name": "reclaim-agent-" + nodeName, "resourceVersion": "1"},
		"data":     map[string]any{"reclaim.toml": s.toml},
	}
	answer := configMap
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		answer = map[string]any{
			"metadata": map[string]any{"name": nodeName, "uid": "u", "resourceVersion": "1", "annotations": map[string]string{"kept": "kept"}},
			"status":   map[string]any{"nodeInfo": map[string]any{"machineID": machineID}},
		}
	case strings.HasSuffix(r.URL.Path, "/configmaps"):
		answer = map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{configMap}}
	}
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // maps of strings have JSON
	if r.Method == http.MethodPatch {
		select {
		case s.patched <- struct{}{}:
		default:
		}
	}
	if r.Method == http.MethodPatch && bytes.Contains(body, []byte("reclaim-requested")) {
		select {
		case s.requested <- clk.Now():
		default:
		}
	}
}

// kubeconfig writes a kubeconfig for the server.
func (s *nodeServer) kubeconfig(dir string) (string, error) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	caPath, path := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority": %q}}], "users": [{"name": "u", "user": {}}]}`, s.URL, caPath)
	for path, text := range map[string]string{caPath: string(ca), path: text} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return path, nil
}

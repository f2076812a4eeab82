// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

const machineID = "0123456789abcdef0123456789abcdef"

// server implements an API server with one Node. It uses the JSON Patch library of kube-apiserver and its status codes.
// 422 is for a patch with a failed test or a missing path, 415 for an unsupported content type, 409 for an outdated
// version.
type server struct {
	mu       sync.Mutex
	node     map[string]any
	version  int
	requests []string
	bodies   []string
	// noJSONPatch makes it behave like Cluster API's in-memory server.
	noJSONPatch bool
	// before runs before each response. A status other than zero is the response.
	before func(s *server, r *http.Request) int
}

func newServer(id string, annotations map[string]any) *server {
	metadata := map[string]any{"name": "ws", "uid": "u1"}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	return &server{version: 7, node: map[string]any{
		"kind": "Node", "metadata": metadata,
		"status": map[string]any{"nodeInfo": map[string]any{"machineID": id}},
	}}
}

func (s *server) annotations() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, _ := s.node["metadata"].(map[string]any)["annotations"].(map[string]any)
	return a
}

// annotate is a write of another party. The caller must hold the lock.
func (s *server) annotate(key, value string) {
	metadata := s.node["metadata"].(map[string]any)
	a, _ := metadata["annotations"].(map[string]any)
	if a == nil {
		a = map[string]any{}
		metadata["annotations"] = a
	}
	a[key] = value
	s.version++
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	s.bodies = append(s.bodies, string(body))
	if s.before != nil {
		if code := s.before(s, r); code != 0 {
			refuse(w, code, "as asked")
			return
		}
	}
	if r.Method == http.MethodPatch {
		if code, err := s.patch(r.Header.Get("Content-Type"), body); err != nil {
			refuse(w, code, err.Error())
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.document())
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","code":%d,"message":%q}`, code, message)
}

func (s *server) document() []byte {
	s.node["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	raw, err := json.Marshal(s.node)
	if err != nil {
		panic(err) // The document came from JSON.
	}
	return raw
}

func (s *server) patch(contentType string, body []byte) (int, error) {
	var changed []byte
	var err error
	switch {
	case contentType == kubeapi.JSONPatch && !s.noJSONPatch:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(body); err == nil {
			changed, err = p.Apply(s.document())
		}
	case contentType == kubeapi.MergePatch:
		changed, err = jsonpatch.MergePatch(s.document(), body)
	default:
		return http.StatusUnsupportedMediaType, fmt.Errorf("the server does not know %s", contentType)
	}
	if err != nil {
		return http.StatusUnprocessableEntity, err
	}
	var node map[string]any
	if err := json.Unmarshal(changed, &node); err != nil {
		return http.StatusInternalServerError, err
	}
	metadata := node["metadata"].(map[string]any)
	if metadata["resourceVersion"] != fmt.Sprint(s.version) || metadata["uid"] != s.node["metadata"].(map[string]any)["uid"] {
		return http.StatusConflict, fmt.Errorf("the object has been modified")
	}
	s.node = node
	s.version++
	return 0, nil
}

// reporter returns a Reporter that calls h over real HTTP.
func reporter(t *testing.T, h http.Handler, id string) *report.Reporter {
	t.Helper()
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := strings.ReplaceAll(`{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
"clusters": [{"name": "k", "cluster": {"server": "URL"}}], "users": [{"name": "u", "user": {}}]}`, "URL", ts.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kubeapi.FromKubeconfig(path, kubeapi.Options{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return report.New(report.Options{
		Client: client, Node: "ws", MachineID: id, Now: time.Now, Holder: &observer{},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

func fake(t *testing.T, c report.Client) *report.Reporter {
	t.Helper()
	return report.New(report.Options{Client: c, Node: "ws", Now: time.Now, Log: slog.New(slog.DiscardHandler), Holder: &observer{}})
}

// observer is a Holder that records what is passed on.
type observer struct {
	enabled   bool
	nodes     []hold.Node
	started   time.Time
	unblocked func(on bool)
}

func (o *observer) Enabled() bool { return o.enabled }
func (o *observer) Observe(n hold.Node, started time.Time) {
	o.nodes, o.started = append(o.nodes, n), started
}

func (o *observer) UnblockRead(on bool) { o.Unblock(on) }

func (o *observer) Unblock(on bool) {
	if o.unblocked != nil {
		o.unblocked(on)
	}
}

// SPDX-License-Identifier: Apache-2.0

package agentcrash

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A fault is an event at a write of the agent.
type fault string

const (
	// before ends the agent before the write reaches the API server.
	before fault = "before"
	// after ends the agent after the write, before it gets the reply.
	after fault = "after"
	// lost loses the reply, and the agent continues.
	lost fault = "lost"
)

// A purpose is the purpose of a write.
type purpose string

const (
	// asking is a request for the machine.
	asking purpose = "asking"
	// telling is a write of the agent's state.
	telling purpose = "telling"
)

// A proxy is between the agent and the API server, and injects faults.
type proxy struct {
	server   *httptest.Server
	upstream http.Handler
	// noJSONPatch makes it answer like a server without JSON Patch.
	noJSONPatch bool

	// breaks is the purpose of the writes that at applies to.
	breaks purpose

	mu sync.Mutex
	// at returns the fault at the n-th write; nil means none.
	at func(n int) fault
	// kill ends the agent. served runs after a write whose reply is not sent.
	kill, served func()
	down         bool
	// writes are the content types of the agent's writes, including failed ones.
	writes map[purpose][]string
	// requests are the annotations of the request after each write that changed the Node.
	requests []map[string]string
	version  string
	// struck is closed when the fault has occurred.
	struck chan struct{}
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	upstream, err := url.Parse(shared.Management.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(shared.Management.Admin.Config))
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport:     transport,
		FlushInterval: -1, // a watch must be forwarded without delay
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p := &proxy{upstream: forward, breaks: asking, writes: map[purpose][]string{}, struck: make(chan struct{}), kill: func() {}, served: func() {}}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	t.Cleanup(func() { p.server.CloseClientConnections(); p.server.Close() })
	return p
}

// ServeHTTP forwards a request. A handler aborts a connection by a panic with ErrAbortHandler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.isDown() {
		panic(http.ErrAbortHandler)
	}
	if r.Method != http.MethodPatch {
		p.upstream.ServeHTTP(w, r)
		return
	}
	what, f, err := p.begin(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if f == before {
		p.strike()
	}
	answer := httptest.NewRecorder()
	if p.noJSONPatch && r.Header.Get("Content-Type") == string(types.JSONPatchType) {
		answer.WriteHeader(http.StatusUnsupportedMediaType)
	} else {
		p.upstream.ServeHTTP(answer, r)
	}
	if what == asking {
		p.observe(answer)
	}
	switch f {
	case after:
		p.strike()
	case lost:
		p.served()
		close(p.struck)
		panic(http.ErrAbortHandler)
	default:
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// strike ends the agent and the fault's waiters.
func (p *proxy) strike() {
	p.kill()
	close(p.struck)
	panic(http.ErrAbortHandler)
}

func (p *proxy) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// setDown closes all connections and refuses requests, or ends that.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.server.CloseClientConnections()
	}
}

// begin counts a write, and returns its purpose and its fault.
func (p *proxy) begin(r *http.Request) (purpose, fault, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	what := telling
	if bytes.Contains(body, []byte("reclaim-requested")) {
		what = asking
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.writes[what])
	p.writes[what] = append(p.writes[what], r.Header.Get("Content-Type"))
	if p.at == nil || what != p.breaks {
		return what, "", nil
	}
	return what, p.at(n), nil
}

// observe records the Node after a write.
func (p *proxy) observe(answer *httptest.ResponseRecorder) {
	var node metav1.PartialObjectMetadata
	if answer.Code >= 300 || json.Unmarshal(answer.Body.Bytes(), &node) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if node.ResourceVersion == p.version {
		return
	}
	p.version = node.ResourceVersion
	request := map[string]string{}
	for key, value := range node.Annotations {
		if strings.HasPrefix(key, "5spot.finos.org/reclaim-") && key != reclaim.StateAnnotation {
			request[key] = value
		}
	}
	p.requests = append(p.requests, request)
}

// seen returns the agent's writes of a request, and their results.
func (p *proxy) seen() (writes []string, requests []map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.writes[asking]...), append([]map[string]string{}, p.requests...)
}

// stateWrites returns how often the agent has tried to write its state.
func (p *proxy) stateWrites() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.writes[telling])
}

// kubeconfig writes the credentials of a file, for use through the proxy.
func (p *proxy) kubeconfig(t *testing.T, from, to string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = p.server.URL, pemOf(p.server.Certificate())
	}
	if err := clientcmd.WriteToFile(*config, to); err != nil {
		t.Fatal(err)
	}
}

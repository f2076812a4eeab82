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

// A fault is what happens at a write of the agent.
type fault string

const (
	// before ends the agent when the write has not reached the API server.
	before fault = "before"
	// after ends the agent when the write is done and it has not heard so.
	after fault = "after"
	// lost loses the reply, and the agent lives on.
	lost fault = "lost"
)

// A purpose is what the agent writes for.
type purpose string

const (
	// asking is for the machine.
	asking purpose = "asking"
	// telling is by what the agent looks for what.
	telling purpose = "telling"
)

// A proxy stands between the agent and the API server, and breaks what it is told to.
type proxy struct {
	server   *httptest.Server
	upstream http.Handler
	// noJSONPatch makes it answer like a server that has no JSON Patch.
	noJSONPatch bool

	// breaks is the kind of write that at is about.
	breaks purpose

	mu sync.Mutex
	// at says what happens at the n-th write; nil means nothing.
	at func(n int) fault
	// kill ends the agent; served runs after a write whose reply is not sent.
	kill, served func()
	down         bool
	// writes are the content types of what the agent has tried to write.
	writes map[purpose][]string
	// requests are the annotations of a request, after each write of one that changed
	// the Node.
	requests []map[string]string
	version  string
	// struck is closed when the fault has happened.
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
		FlushInterval: -1, // a watch has to be passed on as it comes
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p := &proxy{upstream: forward, breaks: asking, writes: map[purpose][]string{}, struck: make(chan struct{}), kill: func() {}, served: func() {}}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	t.Cleanup(func() { p.server.CloseClientConnections(); p.server.Close() })
	return p
}

// ServeHTTP passes a request on. Panicking with ErrAbortHandler is how a handler
// breaks off a connection.
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

// strike ends the agent and what it waits for.
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

// setDown breaks off all connections and takes no request, or ends that.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.server.CloseClientConnections()
	}
}

// begin counts a write and returns what it is for and what happens at it.
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

// observe takes down what a write has made of the Node.
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

// seen returns how the agent has tried to ask, and what came of it.
func (p *proxy) seen() (writes []string, requests []map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.writes[asking]...), append([]map[string]string{}, p.requests...)
}

// told returns how often the agent has tried to tell the Node.
func (p *proxy) told() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.writes[telling])
}

// kubeconfig writes the credentials of a file down, for use through the proxy.
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

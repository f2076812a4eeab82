// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
)

// clock is a clock that the test sets.
type clock struct{ now time.Time }

func (c *clock) options(getenv func(string) string) kubeapi.Options {
	return kubeapi.Options{Now: func() time.Time { return c.now }, Getenv: getenv}
}

// tlsServer is an API server with HTTP/2. It records requests.
func tlsServer(t *testing.T, h http.HandlerFunc) (*httptest.Server, string) {
	t.Helper()
	ts := httptest.NewUnstartedServer(h)
	ts.EnableHTTP2 = true
	ts.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	ts.StartTLS()
	t.Cleanup(ts.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ts.Certificate().Raw})
	return ts, string(ca)
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeconfig renders a file with the given cluster and user.
func kubeconfig(t *testing.T, dir, cluster, user string) string {
	t.Helper()
	return write(t, dir, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
contexts:
- name: elsewhere
  context: {cluster: other, user: other}
- name: here
  context: {cluster: c, user: u, namespace: n}
clusters:
- name: c
  cluster: {%s}
users:
- name: u
  user: {%s}
`, cluster, user))
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"kind":"Status"}`)) }

func TestInClusterReadsTheTokenAgain(t *testing.T) {
	var got []string
	valid := "one"
	ts, ca := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != "Bearer "+valid {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ok(w, r)
	})
	dir := t.TempDir()
	write(t, dir, "ca.crt", ca)
	write(t, dir, "token", "one\n")
	u, err := url.Parse(ts.URL)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KUBERNETES_SERVICE_HOST": u.Hostname(), "KUBERNETES_SERVICE_PORT": u.Port()}
	c := &clock{now: time.Unix(1_700_000_000, 0)}
	o := c.options(func(key string) string { return env[key] })
	o.AccountDir = dir
	client, err := kubeapi.InCluster(o)
	if err != nil {
		t.Fatal(err)
	}
	do := func() {
		t.Helper()
		if err := client.Do(t.Context(), kubeapi.Request{Path: "/x"}, nil); err != nil {
			t.Errorf("Do() = %v", err)
		}
	}
	do()
	write(t, dir, "token", "two")
	do() // recent: not read again
	c.now = c.now.Add(2 * time.Minute)
	valid = "two"
	do() // old: read again
	write(t, dir, "token", "three")
	valid = "three"
	do() // rejected: read at once
	want := []string{"Bearer one", "Bearer one", "Bearer two", "Bearer two", "Bearer three"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tokens: -want, +got:\n%s", diff)
	}
	if !client.Multiplexed() {
		t.Error("HTTP/2 was not used")
	}
}

// TestReplacedAuthorityIsRead: the server gets a certificate of another authority while the agent runs.
func TestReplacedAuthorityIsRead(t *testing.T) {
	clients := map[string]func(t *testing.T, dir string, server *url.URL, o kubeapi.Options) (*kubeapi.Client, error){
		"ServiceAccount": func(t *testing.T, dir string, server *url.URL, o kubeapi.Options) (*kubeapi.Client, error) {
			t.Helper()
			write(t, dir, "token", "one")
			env := map[string]string{"KUBERNETES_SERVICE_HOST": server.Hostname(), "KUBERNETES_SERVICE_PORT": server.Port()}
			o.AccountDir, o.Getenv = dir, func(key string) string { return env[key] }
			return kubeapi.InCluster(o)
		},
		"Kubeconfig": func(t *testing.T, dir string, server *url.URL, o kubeapi.Options) (*kubeapi.Client, error) {
			t.Helper()
			return kubeapi.FromKubeconfig(kubeconfig(t, dir, fmt.Sprintf("server: %q, certificate-authority: ca.crt", server), "token: abc"), o)
		},
	}
	for name, connect := range clients {
		t.Run(name, func(t *testing.T) {
			var serves atomic.Pointer[tls.Certificate]
			ts := httptest.NewUnstartedServer(http.HandlerFunc(ok))
			ts.EnableHTTP2 = true
			ts.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return serves.Load(), nil }}
			authority := map[string]string{}
			rotate := func(name string) {
				t.Helper()
				cert, key := identity(t, name)
				pair, err := tls.X509KeyPair(cert, key)
				if err != nil {
					t.Fatal(err)
				}
				authority[name] = string(cert)
				serves.Store(&pair)
			}
			rotate("one")
			// StartTLS would use its own certificate.
			ts.Listener = tls.NewListener(ts.Listener, ts.TLS)
			ts.Start()
			t.Cleanup(ts.Close)
			server, err := url.Parse(strings.Replace(ts.URL, "http:", "https:", 1))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			trust := func(text string) { t.Helper(); write(t, dir, "ca.crt", text) }
			trust(authority["one"])
			c := &clock{now: time.Unix(1_700_000_000, 0)}
			client, err := connect(t, dir, server, c.options(nil))
			if err != nil {
				t.Fatal(err)
			}
			want := func(reason string, trusted bool) {
				t.Helper()
				err := client.Do(t.Context(), kubeapi.Request{Path: "/x"}, nil)
				if trusted && err != nil || !trusted && (err == nil || !strings.Contains(err.Error(), "certificate")) {
					t.Errorf("%s\nDo() = %v, trusted %v", reason, err, trusted)
				}
			}
			want("As it was when the agent started.", true)
			rotate("two")
			ts.CloseClientConnections()
			want("The file does not have the new authority yet.", false)
			trust("")
			want("An empty file changes nothing.", false)
			trust(authority["one"] + authority["two"])
			want("The file is read at once, not after a minute.", true)
			c.now = c.now.Add(2 * time.Minute)
			trust("")
			want("The last authority stays while the file is empty.", true)
			trust(authority["one"])
			want("An authority that was removed from the file is not trusted any more.", false)
		})
	}
}

func TestInClusterOutsideAPod(t *testing.T) {
	_, err := kubeapi.InCluster((&clock{}).options(func(string) string { return "" }))
	if !errors.Is(err, kubeapi.ErrNotInCluster) {
		t.Errorf("InCluster() = %v, want ErrNotInCluster", err)
	}
}

func TestKubeconfig(t *testing.T) {
	// The pool is loaded here, once, for UnknownCA. That takes seconds on a busy machine, which is too long for a
	// handshake.
	if _, err := x509.SystemCertPool(); err != nil {
		t.Skipf("no certificates of the system: %v", err)
	}
	var cert, auth string
	ts, ca := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
		cert, auth = "", r.Header.Get("Authorization")
		if len(r.TLS.PeerCertificates) > 0 {
			cert = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		ok(w, r)
	})
	certPEM, keyPEM := identity(t, "agent")
	b64 := base64.StdEncoding.EncodeToString
	server := fmt.Sprintf("server: %q, certificate-authority-data: %s", ts.URL, b64([]byte(ca)))
	cases := map[string]struct {
		reason, cluster, user string
		cert, auth            string
		err                   string
	}{
		"Token":             {"By value.", server, "token: abc", "", "Bearer abc", ""},
		"TokenFile":         {"By file, relative to the kubeconfig.", server, "tokenFile: token", "", "Bearer from-file", ""},
		"Certificate":       {"By value.", server, "client-certificate-data: " + b64(certPEM) + ", client-key-data: " + b64(keyPEM), "agent", "", ""},
		"CertificateFiles":  {"By file.", server, "client-certificate: crt, client-key: key", "agent", "", ""},
		"CAFile":            {"By file.", fmt.Sprintf("server: %q, certificate-authority: ca", ts.URL), "token: abc", "", "Bearer abc", ""},
		"Insecure":          {"The kubeconfig may disable the check.", fmt.Sprintf("server: %q, insecure-skip-tls-verify: true", ts.URL), "token: abc", "", "Bearer abc", ""},
		"UnknownCA":         {"An unknown authority is not trusted.", fmt.Sprintf("server: %q", ts.URL), "token: abc", "", "", "certificate"},
		"WrongName":         {"Another server's certificate is refused.", server + ", tls-server-name: other.test", "token: abc", "", "", "other.test"},
		"Exec":              {"Rejected, not ignored.", server, "exec: {command: aws}", "", "", "not supported"},
		"Password":          {"Rejected, not ignored.", server, "username: a", "", "", "not supported"},
		"NoServer":          {"The server needs a scheme.", "server: localhost", "token: abc", "", "", "is not a URL"},
		"CertificateAbsent": {"The error is at the start, not at the first request.", server, "client-certificate: none, client-key: none", "", "", "none"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "token", "from-file")
			write(t, dir, "ca", ca)
			write(t, dir, "crt", string(certPEM))
			write(t, dir, "key", string(keyPEM))
			client, err := kubeapi.FromKubeconfig(kubeconfig(t, dir, tc.cluster, tc.user), kubeapi.Options{Now: time.Now})
			if err == nil {
				err = client.Do(t.Context(), kubeapi.Request{Path: "/x"}, nil)
			}
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s\nerror %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || cert != tc.cert || auth != tc.auth {
				t.Errorf("%s\ncertificate %q, authorization %q, error %v", tc.reason, cert, auth, err)
			}
		})
	}
}

func TestBadKubeconfigs(t *testing.T) {
	for name, text := range map[string]string{
		"NotYAML": "{", "NoContext": "current-context: x", "Empty": "",
		"NoCluster": `{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"c"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, t.TempDir(), "kubeconfig", text)
			if _, err := kubeapi.FromKubeconfig(path, kubeapi.Options{Now: time.Now}); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one that names the file", err)
			}
		})
	}
	if _, err := kubeapi.FromKubeconfig("/missing/kubeconfig", kubeapi.Options{Now: time.Now}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want os.ErrNotExist", err)
	}
}

// plain returns a client of a server without TLS.
func plain(t *testing.T, h http.HandlerFunc) *kubeapi.Client {
	t.Helper()
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	client, err := kubeapi.FromKubeconfig(kubeconfig(t, t.TempDir(), fmt.Sprintf("server: %q", ts.URL+"/prefix/"), ""), kubeapi.Options{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		reason string
		answer http.HandlerFunc
		code   int
		text   string
	}{
		"Status": {"The error has the server's message.", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"message":"no right"}`))
		}, 403, "no right"},
		"Text": {"Proxies answer in text.", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("bad gateway\n"))
		}, 502, "bad gateway"},
		"Nothing":  {"The message may be empty.", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, 500, "Internal Server Error"},
		"Redirect": {"A token is not sent to another server.", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, 302, "Found"},
		"Garbage":  {"A response must be JSON.", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, 0, "decoding"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var into map[string]any
			err := plain(t, tc.answer).Do(t.Context(), kubeapi.Request{Path: "/x"}, &into)
			if err == nil || kubeapi.Code(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%s\nDo() = %v, want code %d with %q", tc.reason, err, tc.code, tc.text)
			}
		})
	}
}

// TestAnswersAreBounded: the server sends more than the limit. Without the limit, the agent would run out of memory.
func TestAnswersAreBounded(t *testing.T) {
	const most = 8 << 20
	long := func(size, code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"message":"`+strings.Repeat("x", size-len(`{"message":""}`))+`"}`)
		}
	}
	var into struct{ Message string }
	if err := plain(t, long(most, http.StatusOK)).Do(t.Context(), kubeapi.Request{Path: "/x"}, &into); err != nil {
		t.Errorf("a response of the maximum length: %v", err)
	}
	if err := plain(t, long(most+1, http.StatusOK)).Do(t.Context(), kubeapi.Request{Path: "/x"}, &into); err == nil {
		t.Error("a response that is too long is read to its end")
	}
	err := plain(t, long(1<<20, http.StatusForbidden)).Do(t.Context(), kubeapi.Request{Path: "/x"}, nil)
	if kubeapi.Code(err) != http.StatusForbidden || len(err.Error()) > 1000 {
		t.Errorf("a refusal of a mebibyte makes an error of %d bytes with code %d", len(err.Error()), kubeapi.Code(err))
	}
}

func TestRequestAsSent(t *testing.T) {
	var got []string
	client := plain(t, func(w http.ResponseWriter, r *http.Request) {
		got = []string{r.Method, r.URL.String(), r.Header.Get("Content-Type"), r.Header.Get("Accept"), r.Header.Get("User-Agent")}
		ok(w, r)
	})
	err := client.Do(t.Context(), kubeapi.Request{
		Method: http.MethodPatch, Path: "/api/v1/nodes/a", Query: url.Values{"fieldManager": {"m"}}, ContentType: kubeapi.JSONPatch, Body: []byte("[]"),
	}, nil)
	want := []string{"PATCH", "/prefix/api/v1/nodes/a?fieldManager=m", kubeapi.JSONPatch, "application/json", "5spot-reclaim-agent"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("request, error %v: -want, +got:\n%s", err, diff)
	}
	if client.Multiplexed() {
		t.Error("without TLS there is no HTTP/2")
	}
}

func TestStream(t *testing.T) {
	release := make(chan struct{})
	client := plain(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("first\n"))
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte("second\n"))
	})
	stream, err := client.Stream(t.Context(), kubeapi.Request{Path: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	if !lines.Scan() || lines.Text() != "first" {
		t.Fatalf("the first line is %q: it must not wait for the second", lines.Text())
	}
	close(release)
	if !lines.Scan() || lines.Text() != "second" {
		t.Fatalf("the second line is %q", lines.Text())
	}
}

func TestServerAway(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	client, err := kubeapi.FromKubeconfig(kubeconfig(t, t.TempDir(), fmt.Sprintf("server: \"http://%s\"", address), ""), kubeapi.Options{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), kubeapi.Request{Path: "/x"}, nil); err == nil || kubeapi.Code(err) != 0 {
		t.Errorf("Do() = %v, want an error without a status", err)
	}
}

// identity creates a certificate of a client, or of a server on this machine.
func identity(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	template.Subject.CommonName, template.IPAddresses = name, []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

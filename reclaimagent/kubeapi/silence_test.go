// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
)

// wire is a network with one server. After cut, no data arrives, and neither end gets an error.
type wire struct {
	server chan net.Conn
	cut    atomic.Bool
	done   chan struct{}
}

// Dial is the client's dial function.
func (w *wire) Dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	w.server <- there
	return &cable{here, w}, nil
}

// Accept, Close and Addr implement net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.server:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error { close(w.done); return nil }
func (*wire) Addr() net.Addr { return &net.TCPAddr{} }

// cable is the client's end of a connection.
type cable struct {
	net.Conn
	wire *wire
}

func (c *cable) Write(b []byte) (int, error) {
	if c.wire.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestSilentNetworkIsDetected: the network fails silently between two requests, as with a switch. The kernel detects
// that after a quarter of an hour; an owner's request would be lost for that time.
func TestSilentNetworkIsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{server: make(chan net.Conn), done: make(chan struct{})}
		cert, key := identity(t, "server")
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{
			Handler: http.HandlerFunc(ok), ReadHeaderTimeout: time.Hour,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		}
		go func() { _ = server.ServeTLS(w, "", "") }()
		defer server.Close()

		dir := t.TempDir()
		write(t, dir, "ca.crt", string(cert))
		config := kubeconfig(t, dir, `server: "https://127.0.0.1:6443", certificate-authority: ca.crt`, "token: abc")
		client, err := kubeapi.FromKubeconfig(config, kubeapi.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		client.DialWith(w.Dial)
		if err := client.Do(t.Context(), kubeapi.Request{Path: "/x"}, nil); err != nil || !client.Multiplexed() {
			t.Fatalf("error %v, HTTP/2 %t", err, client.Multiplexed())
		}
		w.cut.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		began := time.Now()
		err = client.Do(ctx, kubeapi.Request{Path: "/x"}, nil)
		if took := time.Since(began); err == nil || took > 20*time.Second {
			t.Errorf("error %v after %v, want one within 20 s", err, took)
		}
		w.cut.Store(false)
		if err := client.Do(t.Context(), kubeapi.Request{Path: "/x"}, nil); err != nil {
			t.Errorf("once the network is back: %v", err)
		}
	})
}

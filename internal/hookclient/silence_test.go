// SPDX-License-Identifier: Apache-2.0

package hookclient_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
)

// listener returns the connections of a channel, until it is closed.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error { close(l.done); return nil }
func (listener) Addr() net.Addr { return &net.TCPAddr{} }

// severed is a connection whose other end disappears without a packet when cut is set.
type severed struct {
	net.Conn
	cut *atomic.Bool
}

func (s severed) Write(b []byte) (int, error) {
	if s.cut.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// TestAHostThatWentAwayCostsOneCall replaces the host of an extension without closing its connection. The
// kernel keeps the connection for 15 minutes, in which every Machine would wait until its deadline.
func TestAHostThatWentAwayCostsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair, certificate := pairFor(t, "127.0.0.1", time.Now().Add(time.Hour))
		l := listener{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{
			Handler: says(`{"status":"Success"}`), ReadHeaderTimeout: time.Hour,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		}
		go func() { _ = server.ServeTLS(l, "", "") }()
		defer server.Close()

		hook, c, dials := registered("127.0.0.1:443", certificate), &hookclient.Client{}, 0
		hook.Spec.TimeoutSeconds = 30
		first := new(atomic.Bool)
		if err := c.DialWith(hook, func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			l.conns <- there
			if dials++; dials == 1 {
				return severed{here, first}, nil
			}
			return here, nil
		}); err != nil {
			t.Fatal(err)
		}
		defer c.Forget(hook.UID)
		call := func() error { _, err := c.Call(t.Context(), hook, request()); return err }
		if err := call(); err != nil {
			t.Fatal(err)
		}
		first.Store(true)
		if err := call(); err == nil {
			t.Error("an answer from nowhere")
		}
		if err := call(); err != nil || dials != 2 {
			t.Errorf("the next call is over a new connection: %v, %d connections", err, dials)
		}
	})
}

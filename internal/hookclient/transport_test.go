// SPDX-License-Identifier: Apache-2.0

package hookclient_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
)

// TestConnectionsAreKept checks that one connection serves several calls, until the extension is deleted or its
// CA bundle changes.
func TestConnectionsAreKept(t *testing.T) {
	opened, closed := make(chan net.Conn, 10), make(chan net.Conn, 10)
	s := httptest.NewUnstartedServer(says(`{"status":"Success"}`))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened <- c
		case http.StateClosed:
			closed <- c
		default:
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := &hookclient.Client{}
	hook := registered(s.Listener.Addr().String(), s.Certificate().Raw)
	call := func() {
		t.Helper()
		if _, err := c.Call(t.Context(), hook, request()); err != nil {
			t.Fatal(err)
		}
	}
	call()
	call()
	first := <-opened
	hook.Spec.ClientConfig.CABundle = append(bytes.Clone(hook.Spec.ClientConfig.CABundle), '\n')
	call()
	if ended := <-closed; ended != first {
		t.Error("with another bundle the first connection ends")
	}
	second := <-opened
	call()
	c.Forget(hook.UID)
	if ended := <-closed; ended != second {
		t.Error("what is gone keeps no connection")
	}
	if len(opened) != 0 {
		t.Errorf("%d more connections than two", len(opened))
	}
	call()
	<-opened
	c.Forget(hook.UID)
	c.Forget("another")
}

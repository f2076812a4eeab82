// SPDX-License-Identifier: Apache-2.0

package hookclient_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
)

// registered returns a registration of an address with a CA certificate.
func registered(address string, certificate []byte) *v1alpha1.MachineDeletionHook {
	h := &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{UID: "lb"}}
	h.Spec.ClientConfig.URL = "https://" + address
	h.Spec.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	h.Spec.TimeoutSeconds = 30
	return h
}

// serves starts a server with a certificate for a name, valid until an instant.
func serves(t *testing.T, name string, until time.Time) (address string, certificate []byte) {
	t.Helper()
	pair, certificate := pairFor(t, name, until)
	s := httptest.NewUnstartedServer(says(`{"status":"Success"}`))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), certificate
}

// pairFor returns a certificate for a name, valid until an instant, with its key.
func pairFor(t *testing.T, name string, until time.Time) (pair tls.Certificate, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: until.Add(-time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	certificate, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}, certificate
}

// TestAFailureHasOneText makes three calls, with at least a second between two of them. The text of a
// persistent failure must not contain a time or a port.
func TestAFailureHasOneText(t *testing.T) {
	t.Parallel()
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	plain := httptest.NewServer(says("{}"))
	t.Cleanup(plain.Close)
	closes := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(closes.Close)
	gone := httptest.NewTLSServer(nil)
	gone.Close()
	good, certificate := serves(t, "127.0.0.1", soon)
	_, strange := serves(t, "127.0.0.1", soon)
	expired, itsOwn := serves(t, "127.0.0.1", past)
	other, others := serves(t, "lb.test", soon)
	for name, tc := range map[string]struct {
		hook *v1alpha1.MachineDeletionHook
		want string
	}{
		"Good":        {registered(good, certificate), ""},
		"Expired":     {registered(expired, itsOwn), "extension's certificate has expired or is not valid yet"},
		"Unknown":     {registered(good, strange), "extension's certificate is signed by an authority that spec.clientConfig.caBundle does not contain"},
		"AnotherHost": {registered(other, others), "extension's certificate is not for 127.0.0.1"},
		"Plain":       {registered(plain.Listener.Addr().String(), certificate), "extension does not speak TLS"},
		"Refused":     {registered(gone.Listener.Addr().String(), certificate), "connection refused"},
		"Closes":      {registered(closes.Listener.Addr().String(), closes.Certificate().Raw), "extension closed the connection without an answer"},
		"NoHost":      {registered("nobody.invalid", certificate), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var texts []string
			for range 3 {
				c := &hookclient.Client{}
				_, err := c.Call(t.Context(), tc.hook, request())
				c.Forget(tc.hook.UID)
				if err != nil {
					texts = append(texts, err.Error())
				}
			}
			if name == "NoHost" {
				tc.want = texts[0] // The text depends on the name server of the host.
			}
			for _, text := range texts {
				if text != tc.want {
					t.Errorf("%q, want %q", text, tc.want)
				}
			}
			if len(texts) == 0 && tc.want != "" {
				t.Errorf("no error, want %q", tc.want)
			}
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s := httptest.NewUnstartedServer(says(`{"status":"Success"}`))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, err := new(hookclient.Client).Call(t.Context(), registered(s.Listener.Addr().String(), s.Certificate().Raw), request())
	if want := "extension refuses TLS: tls: protocol version not supported"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

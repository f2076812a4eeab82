// SPDX-License-Identifier: Apache-2.0

package extensionconfig_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers/extensionconfig"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// serving writes a new certificate of the webhook server, like cert-manager.
func serving(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARenewedCertificateIsLookedAt replaces the certificate of the webhook server. Its CA may change with it, and
// Cluster API must receive the new one.
func TestARenewedCertificateIsLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serving(t, dir)
	r := &extensionconfig.Reconciler{Options: extensionconfig.Options{CertDir: dir, CertName: "tls.crt", KeyName: "tls.key"}}
	queue := workqueue.NewTypedRateLimitingQueue(wake.Backoff())
	t.Cleanup(queue.ShutDown)
	if err := r.Begin(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	first, _ := queue.Get()
	queue.Done(first)
	if first.Name != extensionconfig.Name || queue.Len() != 0 {
		t.Fatalf("a manager that begins looks once, not at %v and %d more", first, queue.Len())
	}
	serving(t, dir)
	late := time.AfterFunc(time.Minute, queue.ShutDown)
	defer late.Stop()
	if again, never := queue.Get(); never || again != first {
		t.Error("the new certificate is not used")
	}
}

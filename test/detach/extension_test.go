// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/test/drainer"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

// TestAnExtensionDrivesALoadBalancer uses the example of docs/extensions.md: an extension drains a load balancer that
// 5-Spot does not support.
func TestAnExtensionDrivesALoadBalancer(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "extension", 1)
	machine := f.machine(0)
	node := machine.Status.NodeRef.Name
	var connections atomic.Int64
	connections.Store(3)
	theirs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || r.URL.Path != "/drain/"+node {
			http.Error(w, "what?", http.StatusNotFound)
			return
		}
		_, _ = fmt.Fprint(w, connections.Load())
	}))
	t.Cleanup(theirs.Close)
	f.extend(theirs.URL)
	pod := f.RunPod(f.machines[0], "work", f.Image)
	f.SetSchedule(f.machines[0], specs.Closed())
	f.waitHeld(machine, node+" has 3 connections")
	connections.Store(1)
	f.waitHeld(machine, node+" has 1 connections")
	f.WantUntouched(pod)
	connections.Store(0)
	f.waitGone(machine)
}

// extend runs and registers the extension.
func (f *farm) extend(balancer string) {
	f.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	f.Cleanup(certificate.Close)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate().Raw})
	key, err := x509.MarshalPKCS8PrivateKey(certificate.TLS.Certificates[0].PrivateKey)
	f.must(err)
	dir := f.TempDir()
	f.must(os.WriteFile(filepath.Join(dir, "tls.crt"), public, 0o600))
	f.must(os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	ports, err := shared.Ports(1)
	f.must(err)

	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := drainer.Serve(ctx, ports[0], dir, balancer); err != nil {
			f.Errorf("serving extension: %v", err)
		}
	})
	f.Cleanup(func() { stop(); serving.Wait() })
	hook := &v1alpha1.MachineDeletionHook{
		ObjectMeta: metav1.ObjectMeta{Name: f.Namespace},
		Spec: v1alpha1.MachineDeletionHookSpec{
			ClientConfig:      runtimev1.ClientConfig{URL: fmt.Sprintf("https://127.0.0.1:%d", ports[0]), CABundle: public},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.Namespace}},
		},
	}
	f.must(f.Management.Create(f.step(), hook))
	f.Cleanup(func() { f.remove(hook) })
}

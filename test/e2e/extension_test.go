// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/cluster-api/util/conditions"
)

// An extension is a program that 5-Spot calls before machines leave. It uses Cluster API's own server, as a user's
// extension would.
type extension struct {
	l *lab

	mu    sync.Mutex
	holds bool
	asked []hooksv1.BeforeMachineDeleteRequest
}

// newExtension registers an extension for the lab's namespace, which holds departures.
func (l *lab) newExtension() *extension {
	l.t.Helper()
	e := &extension{l: l, holds: true}
	// httptest creates a certificate; another server serves with it.
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	l.t.Cleanup(certificate.Close)
	catalog := runtimecatalog.New()
	l.must(hooksv1.AddToCatalog(catalog))
	l.must(runtimehooksv1.AddToCatalog(catalog)) // the server's own discovery
	port := freePort(l.t)
	s, err := server.New(server.Options{
		Catalog: catalog, Host: "127.0.0.1", Port: port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate.TLS.Certificates[0], nil }
		}},
	})
	l.must(err)
	l.must(s.AddExtensionHandler(server.ExtensionHandler{
		Hook: hooksv1.BeforeMachineDelete, Name: "before-machine-delete", HandlerFunc: e.beforeMachineDelete,
	}))
	ctx, stop := context.WithCancel(context.WithoutCancel(l.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Start(ctx); err != nil {
			l.t.Errorf("serving extension: %v", err)
		}
	})
	l.t.Cleanup(func() { stop(); wg.Wait() })
	l.create(&v1alpha1.MachineDeletionHook{
		ObjectMeta: metav1.ObjectMeta{Name: l.Key.Namespace},
		Spec: v1alpha1.MachineDeletionHookSpec{
			ClientConfig: runtimev1.ClientConfig{
				URL:      fmt.Sprintf("https://127.0.0.1:%d", port),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: l.Key.Namespace}},
			Settings:          map[string]string{"pool": "batch"},
			TimeoutSeconds:    30,
		},
	})
	return e
}

// freePort returns a port that was free a moment ago, because the server needs a number.
func freePort(t *testing.T) int {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = free.Close() }()
	return free.Addr().(*net.TCPAddr).Port
}

func (e *extension) beforeMachineDelete(_ context.Context, req *hooksv1.BeforeMachineDeleteRequest, res *hooksv1.BeforeMachineDeleteResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, *req)
	res.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if e.holds {
		res.SetMessage("3 connections are open")
		res.SetRetryAfterSeconds(1)
	}
}

// letGo makes the extension hold no more departures.
func (e *extension) letGo() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holds = false
}

// calls returns the distinct calls so far, in order.
func (e *extension) calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var calls []string
	for i := range e.asked {
		r := &e.asked[i]
		call := fmt.Sprintf("%s %s %s %s", r.Phase, r.Trigger, r.ScheduledMachine, r.Settings["pool"])
		if !slices.Contains(calls, call) {
			calls = append(calls, call)
		}
	}
	return calls
}

// waitHeld waits until the extension holds the Machine, and a condition shows it.
func (e *extension) waitHeld(m *clusterv1.Machine) {
	e.l.t.Helper()
	e.l.waitFor(m, func() error {
		c := conditions.Get(m, v1alpha1.ReadyForDeletionCondition)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "3 connections are open") {
			return fmt.Errorf("nobody sees who holds it: %v", c)
		}
		return nil
	})
}

func (e *extension) want(calls ...string) {
	e.l.t.Helper()
	if got := e.calls(); !slices.Equal(got, calls) {
		e.l.t.Errorf("the extension was asked %q, want %q", got, calls)
	}
}

func TestAnExtensionIsAskedBeforeAMachineLeaves(t *testing.T) {
	t.Parallel()
	l := newLab(t, "extension")
	e := l.newExtension()
	sm := l.running("box-of-extension", nil)
	machine := l.family(sm).machine
	node := l.node(sm)
	l.delete(machine)
	e.waitHeld(machine)
	if node := l.ownNode(node.Name); node.Spec.Unschedulable {
		t.Error("the Node is cordoned before the extension is done")
	}
	e.want("BeforeDrain External " + sm.Name + " batch")
	e.letGo()
	l.waitGone(machine)
	e.want("BeforeDrain External "+sm.Name+" batch", "BeforeTermination External "+sm.Name+" batch")
	l.waitPhase(sm, active, metav1.ConditionTrue)

	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	if got := e.calls(); !slices.Contains(got, "BeforeTermination Schedule "+sm.Name+" batch") {
		t.Errorf("the extension was asked %q, and not about the end of the window", got)
	}
}

func TestTheOwnerDoesNotWaitForAnExtension(t *testing.T) {
	t.Parallel()
	l := newLab(t, "extowner")
	e := l.newExtension()
	sm := l.running("box-of-extowner", nil)
	machine := l.family(sm).machine
	node := l.node(sm)
	l.closeWindow(sm)
	e.waitHeld(machine)
	l.askBack(node, "java")
	l.wantReclaimed(sm, "java")
	e.want("BeforeDrain Schedule "+sm.Name+" batch", "BeforeDrain EmergencyReclaim "+sm.Name+" batch")
}

// TestAHealthCheckReplacesAMachine has a MachineHealthCheck that marks a machine as unhealthy: it leaves as any other,
// and a new one joins.
func TestAHealthCheckReplacesAMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t, "health")
	sm := l.running("box-of-health", nil)
	l.create(&clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: "check"},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: l.Key.Name,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.ScheduledMachineLabel: sm.Name}},
		},
	})
	machine := l.family(sm).machine
	l.edit(machine, func() { machine.Annotations[clusterv1.RemediateMachineAnnotation] = "" })
	l.waitGone(machine)
	l.waitFor(sm, func() error {
		if sm.Status.Phase != active || l.family(sm).machine.UID == machine.UID {
			return errors.New("it is not replaced")
		}
		return nil
	})
	l.waitPhase(sm, active, metav1.ConditionTrue)
}

// SPDX-License-Identifier: Apache-2.0

package runtimesdk

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed" // the objects of a Cluster of a topology
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/controlplane/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

//go:embed testdata/topology.yaml
var topology string

// holding is a finalizer that keeps a Machine in the middle of its departure.
const holding = "test/hold"

// lab is a Cluster of a topology with a machine of 5-Spot.
type lab struct {
	*world
	key     client.ObjectKey
	cluster *clusterv1.Cluster
	sm      *v1alpha1.ScheduledMachine
	machine *clusterv1.Machine
}

// newLab returns when the machine runs, in a Cluster on the control plane c. The machine does not leave before letGo is
// called.
func newLab(t *testing.T, name string, c *plane.Cluster) *lab {
	t.Helper()
	l := &lab{world: newWorld(t), key: client.ObjectKey{Namespace: name, Name: name}}
	own := &plane.Workload{Cluster: c, Key: l.key}
	l.must(shared.Management.EnsureNamespace(l.ctx(), name))
	secret, err := own.KubeconfigSecret(l.key)
	l.must(err)
	l.must(shared.Management.Client.Create(l.ctx(), secret))
	endpoint, err := own.Endpoint()
	l.must(err)
	docs := strings.NewReplacer("NAME", name, "HOST", endpoint.Host, "PORT", fmt.Sprint(endpoint.Port)).Replace(topology)
	_, err = shared.Management.KubectlInput(l.ctx(), docs, "apply", "-n", name, "-f", "-")
	l.must(err)
	l.cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}

	l.sm = system.ScheduledMachine(own, "box-of-"+name, infrav1.PlaneMachineSpec{})
	l.must(shared.Management.Client.Create(l.ctx(), l.sm))
	l.must(shared.WaitPhase(l.ctx(), l.sm, v1alpha1.PhaseActive, metav1.ConditionTrue))
	l.machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: l.sm.Status.MachineRef.Name}}
	l.edit(l.machine, func() { l.machine.Finalizers = append(l.machine.Finalizers, holding) })
	t.Cleanup(func() {
		if t.Failed() {
			text, err := shared.Management.Kubectl(context.Background(), "get", "-n", name, "-o", "yaml", "clusters,machines,scheduledmachines")
			t.Log(text, err)
		}
	})
	return l
}

// letGo removes the finalizer of the Machine.
func (l *lab) letGo() {
	l.Helper()
	l.edit(l.machine, func() {
		l.machine.Finalizers = slices.DeleteFunc(l.machine.Finalizers, func(f string) bool { return f == holding })
	})
}

// waitHeld waits until a condition of the Cluster shows that it waits for 5-Spot's machine.
func (l *lab) waitHeld(hook string) {
	l.Helper()
	l.must(shared.Management.Wait(l.ctx(), l.cluster, func() error {
		c := conditions.Get(l.cluster, clusterv1.ClusterTopologyReconciledCondition)
		if c == nil || !strings.Contains(c.Message, hook) || !strings.Contains(c.Message, l.sm.Name) {
			return fmt.Errorf("nobody sees that it waits: %v", c)
		}
		return nil
	}))
}

// controlPlane is the control plane of the Cluster.
func (l *lab) controlPlane() *controlplanev1.PlaneControlPlane {
	return &controlplanev1.PlaneControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.cluster.Spec.ControlPlaneRef.Name}}
}

// TestMachinesLeaveBeforeTheirCluster deletes a Cluster that must wait for its departing machine. The workload cluster
// is unreachable, which must not block the departure.
func TestMachinesLeaveBeforeTheirCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := shared.NewCluster(w.ctx(), "delete", plane.ClusterOptions{NoScheduler: true})
	w.must(err)
	l := newLab(t, "delete", c)
	l.must(c.APIServer.Kill())
	l.must(shared.Management.Client.Delete(l.ctx(), l.cluster))
	l.waitHeld("BeforeClusterDelete")
	l.must(shared.Management.Wait(l.ctx(), l.cluster, func() error {
		if c := conditions.Get(l.cluster, clusterv1.ClusterDeletingCondition); c == nil || c.Reason != clusterv1.ClusterDeletingWaitingForBeforeDeleteHookReason {
			return fmt.Errorf("nobody sees why it does not go: %v", c)
		}
		return nil
	}))
	l.must(shared.Management.Wait(l.ctx(), l.machine, func() error {
		if l.machine.DeletionTimestamp.IsZero() {
			return errors.New("the machine does not leave")
		}
		return nil
	}))
	deployments := &clusterv1.MachineDeploymentList{}
	l.must(shared.Management.Client.List(l.ctx(), deployments, client.InNamespace(l.key.Namespace)))
	if len(deployments.Items) != 1 || !deployments.Items[0].DeletionTimestamp.IsZero() {
		t.Errorf("the rest of the Cluster goes already: %v", deployments.Items)
	}
	began := time.Now()
	l.letGo()
	l.must(shared.Management.WaitGone(l.ctx(), l.cluster))
	t.Logf("the Cluster was gone %v after its last machine", time.Since(began).Round(10*time.Millisecond))
}

// TestUpgradesWaitForAnEmergency turns the kill switch on before an upgrade.
func TestUpgradesWaitForAnEmergency(t *testing.T) {
	t.Parallel()
	l := newLab(t, "upgrade", shared.Management)
	l.edit(l.sm, func() { l.sm.Spec.KillSwitch = true })
	l.must(shared.Management.Wait(l.ctx(), l.machine, func() error {
		if l.machine.DeletionTimestamp.IsZero() {
			return errors.New("the machine does not leave")
		}
		return nil
	}))
	l.edit(l.cluster, func() { l.cluster.Spec.Topology.Version = "v1.36.0" })
	l.waitHeld("BeforeClusterUpgrade")
	cp := l.controlPlane()
	l.must(shared.Management.Client.Get(l.ctx(), client.ObjectKeyFromObject(cp), cp))
	if cp.Spec.Version != "v1.35.0" {
		t.Errorf("the control plane is upgraded to %s in an emergency", cp.Spec.Version)
	}
	l.measure()

	began := time.Now()
	l.letGo()
	l.must(shared.Management.Wait(l.ctx(), cp, func() error {
		if cp.Spec.Version != "v1.36.0" {
			return errors.New("the control plane is not upgraded")
		}
		return nil
	}))
	t.Logf("the control plane was upgraded %v after the machine left", time.Since(began).Round(10*time.Millisecond))
	l.must(plane.Until(l.ctx(), func(ctx context.Context) error {
		list := &clusterv1.MachineDeploymentList{}
		if err := shared.Management.Client.List(ctx, list, client.InNamespace(l.key.Namespace)); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Spec.Template.Spec.Version != "v1.36.0" {
			return errors.New("the workers are not upgraded")
		}
		return nil
	}))
}

// measure calls 5-Spot's manager as core does, and logs how long the answer takes.
func (l *lab) measure() {
	l.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(l.config.Spec.ClientConfig.CABundle)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	l.Cleanup(c.CloseIdleConnections)
	req := &runtimehooksv1.BeforeWorkersUpgradeRequest{Cluster: *l.cluster}
	body, err := json.Marshal(req)
	l.must(err)
	address := l.config.Spec.ClientConfig.URL + "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeworkersupgrade/before-workers-upgrade"
	var took []time.Duration
	for range 200 {
		began := time.Now()
		res := &runtimehooksv1.BeforeWorkersUpgradeResponse{}
		l.must(post(l.Context(), c, address, body, res))
		took = append(took, time.Since(began))
		if !strings.Contains(res.Message, l.sm.Name) || res.RetryAfterSeconds == 0 {
			l.Fatalf("workers are not held: %+v", res)
		}
	}
	slices.Sort(took)
	l.Logf("a hook is answered in %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
}

func post(ctx context.Context, c *http.Client, address string, body []byte, into runtime.Object) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	return json.NewDecoder(res.Body).Decode(into)
}

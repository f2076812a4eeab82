// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	_ "embed" // the objects of an in-memory Cluster
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed inmemory.yaml
var inMemoryCluster string

//go:embed inmemorymachine.yaml
var inMemoryMachine string

// MemoryCluster is a workload cluster inside Cluster API's dev provider. It has Nodes and Pods, but no eviction,
// server-side apply or authorization.
type MemoryCluster struct {
	// Key is the name of the Cluster in the management cluster.
	Key client.ObjectKey
	// Config and Client are for its API server.
	Config *rest.Config
	Client client.WithWatch
}

// NewInMemory creates a Cluster with one in-memory control plane Machine and returns when Cluster API is connected. It
// needs the InMemory components. An empty namespace means "default".
func (p *Plane) NewInMemory(ctx context.Context, namespace, name string) (*MemoryCluster, error) {
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	if err := p.Management.EnsureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	if err := p.Management.create(ctx, inMemoryCluster, "NAMESPACE", namespace, "NAME", name, "VERSION", Version); err != nil {
		return nil, fmt.Errorf("making in-memory cluster %s/%s: %w", namespace, name, err)
	}
	return p.WaitInMemory(ctx, client.ObjectKey{Namespace: namespace, Name: name})
}

// WaitInMemory returns an existing in-memory Cluster when Cluster API is connected.
func (p *Plane) WaitInMemory(ctx context.Context, key client.ObjectKey) (*MemoryCluster, error) {
	m := &MemoryCluster{Key: key}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := p.Management.Wait(ctx, cluster, func() error { return connected(cluster) }); err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	if err := p.Management.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name + "-kubeconfig"}, secret); err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	var err error
	if m.Config, err = clientcmd.RESTConfigFromKubeConfig(secret.Data["value"]); err != nil {
		return nil, fmt.Errorf("parsing kubeconfig: %w", err)
	}
	m.Config.QPS = -1
	m.Client, err = client.NewWithWatch(m.Config, client.Options{Scheme: Scheme()})
	return m, err
}

// NewInMemoryMachine creates a worker Machine, its KubeadmConfig and its DevMachine, with the same name. It does not
// wait.
func (p *Plane) NewInMemoryMachine(ctx context.Context, c *MemoryCluster, name string) (*clusterv1.Machine, error) {
	err := p.Management.create(ctx, inMemoryMachine, "NAMESPACE", c.Key.Namespace, "NAME", name, "VERSION", Version, "CLUSTER", c.Key.Name)
	if err != nil {
		return nil, fmt.Errorf("making in-memory machine %s: %w", name, err)
	}
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Key.Namespace, Name: name}}, nil
}

// create creates the objects of a YAML stream after replacements, which are pairs of old and new strings.
func (c *Cluster) create(ctx context.Context, docs string, replacements ...string) error {
	objects, err := Objects([]byte(strings.NewReplacer(replacements...).Replace(docs)))
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.Client.Create(ctx, obj); err != nil {
			return fmt.Errorf("creating %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

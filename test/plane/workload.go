// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/controlplane/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// WorkloadOptions describes a workload cluster.
type WorkloadOptions struct {
	// Namespace is the namespace in the management cluster. Empty means "default". It is created if necessary.
	Namespace string
	// Name is the name of the Cluster.
	Name string
	// NodeLeaseSeconds is the lease duration of simulated Nodes, which renew after a quarter of it. Zero means 40.
	// Increase it, and NodeMonitorGrace, for many Nodes.
	NodeLeaseSeconds int32
	// RealNodes makes the kubernetes Service reachable for pods of real nodes on this machine. Plane.RealNodes checks
	// the requirements.
	RealNodes bool
	// ClusterOptions describes its control plane.
	ClusterOptions
	// Mutate changes the Cluster before it is created.
	Mutate func(*clusterv1.Cluster)
}

// Workload is a workload cluster that Cluster API manages, with its own control plane.
type Workload struct {
	*Cluster
	// Key is the name of the Cluster in the management cluster.
	Key client.ObjectKey
}

// NewWorkload starts a control plane, creates a Cluster for it, and returns when Cluster API is connected. It needs the
// Infrastructure component.
func (p *Plane) NewWorkload(ctx context.Context, o WorkloadOptions) (*Workload, error) {
	if o.Namespace == "" {
		o.Namespace = metav1.NamespaceDefault
	}
	o.signs = o.RealNodes
	c, err := p.NewCluster(ctx, o.Namespace+"-"+o.Name, o.ClusterOptions)
	if err != nil {
		return nil, err
	}
	if o.RealNodes {
		if c.forward, err = newForwarder(ctx, c.serviceIP, strings.TrimPrefix(c.URL, "https://")); err != nil {
			return nil, fmt.Errorf("making the kubernetes Service reachable: %w", err)
		}
	}
	return p.Manage(ctx, c, o)
}

// Manage creates a Cluster for a running control plane, and returns when Cluster API is connected. Several Clusters may
// have the same control plane.
func (p *Plane) Manage(ctx context.Context, c *Cluster, o WorkloadOptions) (*Workload, error) {
	w := &Workload{Cluster: c, Key: client.ObjectKey{Namespace: o.Namespace, Name: o.Name}}
	if err := p.Management.EnsureNamespace(ctx, o.Namespace); err != nil {
		return nil, err
	}
	secret, err := c.KubeconfigSecret(w.Key)
	if err != nil {
		return nil, err
	}
	infra, err := w.infrastructure(o)
	if err != nil {
		return nil, err
	}
	cluster := w.object()
	if o.Mutate != nil {
		o.Mutate(cluster)
	}
	for _, obj := range []client.Object{secret, infra, &controlplanev1.PlaneControlPlane{ObjectMeta: w.meta()}, cluster} {
		if err := p.Management.Client.Create(ctx, obj); err != nil {
			return nil, fmt.Errorf("creating %T of cluster %s: %w", obj, w.Key, err)
		}
	}
	if o.Mutate != nil && cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return w, nil
	}
	return w, p.Management.Wait(ctx, cluster, func() error { return connected(cluster) })
}

func (w *Workload) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.Key.Namespace, Name: w.Key.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: w.Key.Name}}
}

func (w *Workload) object() *clusterv1.Cluster {
	return &clusterv1.Cluster{
		ObjectMeta: w.meta(),
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "PlaneCluster", Name: w.Key.Name},
			ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "PlaneControlPlane", Name: w.Key.Name},
		},
	}
}

func (w *Workload) infrastructure(o WorkloadOptions) (*infrav1.PlaneCluster, error) {
	endpoint, err := w.Endpoint()
	return &infrav1.PlaneCluster{ObjectMeta: w.meta(), Spec: infrav1.PlaneClusterSpec{
		ControlPlaneEndpoint: endpoint, NodeLeaseSeconds: o.NodeLeaseSeconds,
	}}, err
}

// Endpoint returns the address of the API server, for callers that create the Cluster themselves.
func (c *Cluster) Endpoint() (infrav1.APIEndpoint, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return infrav1.APIEndpoint{}, err
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	return infrav1.APIEndpoint{Host: u.Hostname(), Port: int32(port)}, err
}

// KubeconfigSecret returns the Secret with which Cluster API connects to a cluster, for callers that create the Cluster
// themselves. It does not create the Secret.
func (c *Cluster) KubeconfigSecret(cluster client.ObjectKey) (*corev1.Secret, error) {
	info, err := c.certificate("cluster-api", "system:masters")
	if err != nil {
		return nil, err
	}
	raw, err := clientcmd.Write(c.kubeconfig("cluster-api", info))
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": raw},
	}, nil
}

// EnsureNamespace creates a namespace if it does not exist.
func (c *Cluster) EnsureNamespace(ctx context.Context, name string) error {
	err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// connected returns why Cluster API is not connected to a Cluster, or nil.
func connected(c *clusterv1.Cluster) error {
	if c.Status.Initialization.ControlPlaneInitialized == nil || !*c.Status.Initialization.ControlPlaneInitialized {
		return errors.New("its control plane is not initialized")
	}
	for _, cond := range c.Status.Conditions {
		if cond.Type == clusterv1.ClusterRemoteConnectionProbeCondition {
			if cond.Status == metav1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("%s: %s", cond.Reason, cond.Message)
		}
	}
	return errors.New("it has not been probed yet")
}

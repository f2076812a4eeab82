// SPDX-License-Identifier: Apache-2.0

// Package remote answers one question: how does the provider talk to the
// workload cluster of a Cluster? It knows nothing about machines.
package remote

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kubeconfigs reads the kubeconfig Secrets that Cluster API keeps, once per
// Cluster. It is safe for concurrent use.
type Kubeconfigs struct {
	// Reader reads the management cluster.
	Reader client.Reader

	mu    sync.Mutex
	known map[client.ObjectKey][]byte
}

// Get returns the kubeconfig of a Cluster as it is stored.
func (k *Kubeconfigs) Get(ctx context.Context, cluster client.ObjectKey) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if raw, ok := k.known[cluster]; ok {
		return raw, nil
	}
	secret := &corev1.Secret{}
	if err := k.Reader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}, secret); err != nil {
		return nil, fmt.Errorf("reading kubeconfig of %s: %w", cluster, err)
	}
	if k.known == nil {
		k.known = map[client.ObjectKey][]byte{}
	}
	k.known[cluster] = secret.Data["value"]
	return secret.Data["value"], nil
}

// Config returns the same for client libraries, without a rate limit.
func (k *Kubeconfigs) Config(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	raw, err := k.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("parsing kubeconfig of %s: %w", cluster, err)
	}
	cfg.QPS, cfg.UserAgent = -1, "plane-infrastructure"
	return cfg, nil
}

// Forget drops what is known of a Cluster.
func (k *Kubeconfigs) Forget(cluster client.ObjectKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, cluster)
}

// SPDX-License-Identifier: Apache-2.0

// Package workload answers one question: how is a workload cluster seen? Its
// Cluster, paused or not; what it holds, through one cache for all controllers; and
// what in it wakes whom. What the objects mean is for those who read them.
package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// UnreachableAfter is how long a connection may fail before it is reported. One
// that was never made is reported at its first failure.
const UnreachableAfter = time.Minute

// ClusterKey is the key of the Cluster that a ScheduledMachine names.
func ClusterKey(sm *v1alpha1.ScheduledMachine) client.ObjectKey {
	return client.ObjectKey{Namespace: sm.Namespace, Name: sm.Spec.ClusterName}
}

// ClusterOf reads the Cluster that obj, of the same namespace, belongs to, nil if
// there is none, and says whether either of them is paused. What the cache does not
// have is looked up live: clusterctl move makes the Cluster first, and paused, but
// the cache may show its machines before it.
func ClusterOf(ctx context.Context, cached, live client.Reader, obj client.Object, name string) (cluster *clusterv1.Cluster, paused bool, err error) {
	cluster = &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}
	err = cached.Get(ctx, key, cluster)
	if apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, cluster)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, annotations.HasPaused(obj), nil
	case err != nil:
		return nil, false, fmt.Errorf("reading Cluster: %w", err)
	}
	return cluster, annotations.IsPaused(cluster, obj), nil
}

// Node reads the Node of that name from a workload cluster, nil if there is none.
func Node(ctx context.Context, reader client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	return node, nil
}

// Live returns a reader of a workload cluster that no cache is asked for. The error of one
// that is not connected is clustercache.ErrClusterNotConnected.
func Live(ctx context.Context, cache clustercache.ClusterCache, cluster client.ObjectKey) (client.Reader, error) {
	//nolint:forbidigo // It is read with, and given out as a reader.
	return cache.GetUncachedClient(ctx, cluster)
}

// NotConnected reports whether err is that of a workload cluster without a
// connection, which wakes everybody once it is there.
func NotConnected(err error) bool { return errors.Is(err, clustercache.ErrClusterNotConnected) }

// IgnoreNotConnected returns nil for an error that NotConnected reports.
func IgnoreNotConnected(err error) error {
	if NotConnected(err) {
		return nil
	}
	return err
}

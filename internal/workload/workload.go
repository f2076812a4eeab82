// SPDX-License-Identifier: Apache-2.0

// Package workload gives controllers access to workload clusters: the Cluster object and its pause, cached and
// live reads, and watches. One cache per cluster serves all controllers.
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
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// UnreachableAfter is how long a connection may fail before it is reported. A connection that never succeeded
// is reported at its first failure.
const UnreachableAfter = time.Minute

// ClusterKey returns the key of the Cluster that a ScheduledMachine names.
func ClusterKey(sm *v1alpha1.ScheduledMachine) client.ObjectKey {
	return client.ObjectKey{Namespace: sm.Namespace, Name: sm.Spec.ClusterName}
}

// ClusterOf reads the Cluster of obj, which is in the same namespace. It returns nil if there is none. paused
// reports whether the Cluster or obj is paused. It reads a Cluster that the cache lacks live: clusterctl move
// creates the Cluster first, and paused, but the cache may show its machines first.
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

// MatchesFilter reports whether an object has Cluster API's watch label with the value of a watch filter. An empty filter
// matches every object.
func MatchesFilter(filter string, obj client.Object) bool {
	return filter == "" || labels.HasWatchLabel(obj, filter)
}

// ServedBy reports whether the manager with this watch filter serves a machine. The first of its objects with the watch
// label counts. Without any label, every manager serves it.
func ServedBy(filter string, objects ...client.Object) bool {
	for _, obj := range objects {
		if value, ok := obj.GetLabels()[clusterv1.WatchLabel]; ok && filter != "" {
			return value == filter
		}
	}
	return true
}

// Node reads a Node from a workload cluster. It returns nil if it does not exist.
func Node(ctx context.Context, reader client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("reading Node %s: %w", name, err))
	}
	return node, nil
}

// Live returns an uncached reader of a workload cluster. The error for a cluster that is not connected is
// clustercache.ErrClusterNotConnected.
func Live(ctx context.Context, cache clustercache.ClusterCache, cluster client.ObjectKey) (client.Reader, error) {
	//nolint:forbidigo // It is read with, and given out as a reader.
	return cache.GetUncachedClient(ctx, cluster)
}

// NotConnected reports whether err means that a workload cluster has no connection. The controllers are
// enqueued when it connects.
func NotConnected(err error) bool { return errors.Is(err, clustercache.ErrClusterNotConnected) }

// IgnoreNotConnected returns nil for an error that NotConnected reports.
func IgnoreNotConnected(err error) error {
	if NotConnected(err) {
		return nil
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels of what we make in a workload cluster. The first is only on what the
// manager made: the same objects, applied by somebody else, are theirs.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"

	managedBy = "5spot"
	name      = "5spot"
	component = "reclaim-agent"
)

// errForeign reports an object of somebody else that has a name that we need.
var errForeign = errors.New("not managed by 5-Spot")

func foreign(kind, name string) error {
	return fmt.Errorf("%s %s exists and is %w, and is left alone", kind, name, errForeign)
}

// claim says on obj who made it and for which Cluster.
func claim(obj metav1.Object, cluster client.ObjectKey) {
	obj.SetLabels(with(obj.GetLabels(), managedByLabel, managedBy))
	obj.SetAnnotations(with(with(obj.GetAnnotations(),
		clusterv1.ClusterNamespaceAnnotation, cluster.Namespace), clusterv1.ClusterNameAnnotation, cluster.Name))
}

// with returns m with one more pair.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// presenceOf says whose an object that exists is.
func presenceOf(obj metav1.Object, cluster client.ObjectKey) Presence {
	a := obj.GetAnnotations()
	switch {
	case obj.GetLabels()[managedByLabel] != managedBy:
		return Foreign
	case a[clusterv1.ClusterNamespaceAnnotation] != cluster.Namespace || a[clusterv1.ClusterNameAnnotation] != cluster.Name:
		return Elsewhere
	default:
		return Ours
	}
}

// A fingerprint tells whether an object is as it was. The generation leaves status
// out; kinds that have none have no status either.
type fingerprint struct {
	uid     types.UID
	version string
}

func fingerprintOf(obj metav1.Object) fingerprint {
	if g := obj.GetGeneration(); g > 0 {
		return fingerprint{obj.GetUID(), fmt.Sprint(g)}
	}
	return fingerprint{obj.GetUID(), obj.GetResourceVersion()}
}

// identity names one object of one installation.
type identity struct {
	kind schema.GroupKind
	key  client.ObjectKey
}

// memory is what this process knows of workload clusters. All of it can be lost:
// then it is looked at again.
type memory struct {
	mu sync.Mutex
	// left is how objects of installations were left.
	left map[client.ObjectKey]map[identity]fingerprint
	// clean are Clusters without a user in which nothing of ours is left.
	clean map[client.ObjectKey]bool
}

func (m *memory) leave(cluster client.ObjectKey, id identity, f fingerprint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == nil {
		m.left = map[client.ObjectKey]map[identity]fingerprint{}
	}
	if m.left[cluster] == nil {
		m.left[cluster] = map[identity]fingerprint{}
	}
	m.left[cluster][id] = f
}

func (m *memory) recall(cluster client.ObjectKey, id identity) (fingerprint, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.left[cluster][id]
	return f, ok
}

// forget makes the next look at a Cluster a thorough one.
func (m *memory) forget(cluster client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.left, cluster)
	delete(m.clean, cluster)
}

// setClean says whether a Cluster is known to have nothing of ours.
func (m *memory) setClean(cluster client.ObjectKey, clean bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !clean {
		delete(m.clean, cluster)
		return
	}
	if m.clean == nil {
		m.clean = map[client.ObjectKey]bool{}
	}
	delete(m.left, cluster)
	m.clean[cluster] = true
}

func (m *memory) isClean(cluster client.ObjectKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clean[cluster]
}

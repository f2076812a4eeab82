// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

// presenceOf says whose an object that exists is. An object of ours stays ours if only the label
// or only the annotations are removed.
func presenceOf(obj metav1.Object, cluster client.ObjectKey) Presence {
	a := obj.GetAnnotations()
	namespace, name := a[clusterv1.ClusterNamespaceAnnotation], a[clusterv1.ClusterNameAnnotation]
	here, nowhere := namespace == cluster.Namespace && name == cluster.Name, namespace == "" && name == ""
	switch by := obj.GetLabels()[managedByLabel]; {
	case by == managedBy && (here || nowhere), by == "" && here:
		return Ours
	case by == managedBy:
		return Elsewhere
	default:
		return Foreign
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

// A part is one of the things that are installed, as people name it.
type part string

// The parts. Both have the Namespace.
const (
	agent part = "reclaim agent"
	guard part = "eviction guard"
)

// identity names one object of one installation.
type identity struct {
	part part
	kind schema.GroupKind
	key  client.ObjectKey
}

// memory is what this process knows of workload clusters. All of it can be lost:
// then it is looked at again.
type memory struct {
	mu sync.Mutex
	// left is how objects of installations were left.
	left map[client.ObjectKey]map[identity]fingerprint
	// clean are Clusters without a user of a part in which nothing of it is left.
	clean map[client.ObjectKey]map[part]bool
	// failed are the failures of the guard that people have been told of.
	failed map[client.ObjectKey]string
	// restorations are the repairs that were made.
	restorations map[client.ObjectKey]map[repair]restoration
}

// repair is one kind of restoration of one object. Each has its own limit: edits of an object must
// not delay its creation after a deletion.
type repair struct {
	identity
	deleted bool
}

// restoration bounds how often one repair is made, and keeps what differed last.
type restoration struct {
	limit *rate.Limiter
	what  string
}

// contested returns an error if a repair was made so often that it has to wait.
func (m *memory) contested(cluster client.ObjectKey, id repair, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.restorations[cluster][id]
	if !ok || last.limit.TokensAt(now) >= 1 {
		return nil
	}
	return fmt.Errorf("%s %s %w, %d times, then once in %v; last time: %s", id.kind.Kind, id.key.Name, errContested, restoreBurst, restoreInterval, last.what)
}

// restored records a repair.
func (m *memory) restored(cluster client.ObjectKey, id repair, now time.Time, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.restorations == nil {
		m.restorations = map[client.ObjectKey]map[repair]restoration{}
	}
	if m.restorations[cluster] == nil {
		m.restorations[cluster] = map[repair]restoration{}
	}
	last := m.restorations[cluster][id]
	if last.limit == nil {
		last.limit = rate.NewLimiter(rate.Every(restoreInterval), restoreBurst)
	}
	last.limit.AllowN(now, 1)
	last.what = what
	m.restorations[cluster][id] = last
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

// deleted notes that 5-Spot deleted an object.
func (m *memory) deleted(cluster client.ObjectKey, id identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.left[cluster], id)
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
	delete(m.failed, cluster)
	delete(m.restorations, cluster)
}

// forgetPart makes the next look at one part a thorough one.
func (m *memory) forgetPart(cluster client.ObjectKey, p part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.left[cluster], func(id identity, _ fingerprint) bool { return id.part == p })
	delete(m.clean[cluster], p)
}

// setClean says whether a Cluster is known to have nothing of a part.
func (m *memory) setClean(cluster client.ObjectKey, p part, clean bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !clean {
		delete(m.clean[cluster], p)
		return
	}
	if m.clean == nil {
		m.clean = map[client.ObjectKey]map[part]bool{}
	}
	if m.clean[cluster] == nil {
		m.clean[cluster] = map[part]bool{}
	}
	maps.DeleteFunc(m.left[cluster], func(id identity, _ fingerprint) bool { return id.part == p })
	m.clean[cluster][p] = true
}

func (m *memory) isClean(cluster client.ObjectKey, p part) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clean[cluster][p]
}

// fails notes a failure of the guard, empty for none, and reports whether it is news.
func (m *memory) fails(cluster client.ObjectKey, class string) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if class == "" {
		delete(m.failed, cluster)
		return false
	}
	if m.failed == nil {
		m.failed = map[client.ObjectKey]string{}
	}
	news = m.failed[cluster] != class
	m.failed[cluster] = class
	return news
}

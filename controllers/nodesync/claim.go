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

// Labels of the objects that 5-Spot creates in a workload cluster. Only objects that the manager created have the first
// label. A person who applies the same manifests owns the result.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"

	managedBy = "5spot"
	name      = "5spot"
	component = "reclaim-agent"
)

// errForeign means that an object of another writer has a name that 5-Spot needs.
var errForeign = errors.New("not managed by 5-Spot")

func foreign(kind, name string) error {
	return fmt.Errorf("%s %s exists and is %w, and is left alone", kind, name, errForeign)
}

// claim sets the label of 5-Spot, and annotations that name the Cluster.
func claim(obj metav1.Object, cluster client.ObjectKey) {
	obj.SetLabels(with(obj.GetLabels(), managedByLabel, managedBy))
	obj.SetAnnotations(with(with(obj.GetAnnotations(),
		clusterv1.ClusterNamespaceAnnotation, cluster.Namespace), clusterv1.ClusterNameAnnotation, cluster.Name))
}

// with sets one pair in m and returns m.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// presenceOf returns the owner of an existing object. An object of 5-Spot is still recognized if only the label or only
// the annotations were removed.
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

// A fingerprint changes when an object changes. It uses the generation, which status changes do not increase. Kinds
// without a generation have no status either, so that their resourceVersion serves.
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

// A part is one of the two installations, named as in Events.
type part string

// The parts. Both contain the Namespace.
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

// memory caches the state of workload clusters in this process. Lost entries cause more reads, not wrong decisions. It
// is safe for concurrent use.
type memory struct {
	mu sync.Mutex
	// left has the fingerprint of each object after its latest write or check.
	left map[client.ObjectKey]map[identity]fingerprint
	// clean marks parts that a Cluster does not use, and of which no object remains.
	clean map[client.ObjectKey]map[part]bool
	// failed has the class of the guard's latest failure, to deduplicate Events.
	failed map[client.ObjectKey]string
	// restorations has the repairs of the objects of each Cluster.
	restorations map[client.ObjectKey]map[repair]restoration
}

// repair is one kind of restoration of one object. Each has its own limit: edits of an object must not delay its
// creation after a deletion.
type repair struct {
	identity
	deleted bool
}

// restoration limits the rate of one repair. what is the latest difference.
type restoration struct {
	limit *rate.Limiter
	what  string
}

// contested returns an error if a repair has reached its limit.
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

// deleted records that 5-Spot deleted an object.
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

// forget removes all entries of a Cluster, so that the next reconcile reads all its objects live.
func (m *memory) forget(cluster client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.left, cluster)
	delete(m.clean, cluster)
	delete(m.failed, cluster)
	delete(m.restorations, cluster)
}

// forgetPart removes the entries of one part, so that the next reconcile reads its objects live.
func (m *memory) forgetPart(cluster client.ObjectKey, p part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.left[cluster], func(id identity, _ fingerprint) bool { return id.part == p })
	delete(m.clean[cluster], p)
}

// setClean records whether a Cluster has no object of a part.
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

// fails records the class of a failure of the guard, empty for none. It reports whether the class is new.
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

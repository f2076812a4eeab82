// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"fmt"
	"maps"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
)

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

// identity names one object of one installation.
type identity struct {
	part installed.Part
	kind schema.GroupKind
	key  client.ObjectKey
}

// clusterState caches the state of one workload cluster in this process. Lost entries cause more reads, not wrong
// decisions. Only the reconcile of its Cluster uses it.
type clusterState struct {
	// written has the fingerprint of each object after its latest write or check.
	written map[identity]fingerprint
	// clean marks parts that the Cluster does not use, and of which no object remains.
	clean map[installed.Part]bool
	// holds selects the manifests of the agent of which written has the fingerprints.
	holds bool
	// failed has the latest failure of each part.
	failed map[installed.Part]installed.Failure
	// restorations has the repairs of the objects.
	restorations map[repair]*restoration
}

// stateOf returns the state of a Cluster.
func (r *Reconciler) stateOf(cluster client.ObjectKey) *clusterState {
	m, _ := r.states.LoadOrStore(cluster, &clusterState{
		written: map[identity]fingerprint{}, clean: map[installed.Part]bool{}, failed: map[installed.Part]installed.Failure{},
		restorations: map[repair]*restoration{},
	})
	return m.(*clusterState)
}

// repair is one kind of restoration of one object. Each has its own limit: edits of an object must not delay its
// creation after a deletion.
type repair struct {
	identity
	deleted bool
}

// restoration limits the rate of one repair. difference describes the latest one.
type restoration struct {
	limit      *rate.Limiter
	difference string
}

// contested returns an error if a repair has reached its limit.
func (m *clusterState) contested(id repair, now time.Time) error {
	last, ok := m.restorations[id]
	if !ok || last.limit.TokensAt(now) >= 1 {
		return nil
	}
	return fmt.Errorf("%s %s %w, %d times, then once in %v; last time: %s",
		id.kind.Kind, id.key.Name, installed.ErrContested, restoreBurst, restoreInterval, last.difference)
}

// restored records a repair.
func (m *clusterState) restored(id repair, now time.Time, difference string) {
	if m.restorations[id] == nil {
		m.restorations[id] = &restoration{limit: rate.NewLimiter(rate.Every(restoreInterval), restoreBurst)}
	}
	m.restorations[id].limit.AllowN(now, 1)
	m.restorations[id].difference = difference
}

// forget removes the entries of one part, so that the next reconcile reads its objects live.
func (m *clusterState) forget(p installed.Part) {
	maps.DeleteFunc(m.written, func(id identity, _ fingerprint) bool { return id.part == p })
	delete(m.clean, p)
}

// fails records the failure of a part, zero for none. It returns the text, and whether the failure is of a new class.
func (m *clusterState) fails(p installed.Part, err error) (text string, isNew bool) {
	last := m.failed[p]
	m.failed[p] = installed.FailureOf(err, p, last)
	return m.failed[p].Text, m.failed[p].Class != last.Class
}

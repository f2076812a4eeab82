// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
)

// maxClaims bounds the cache. It is more than the ScheduledMachines of one manager; beyond it, some claims are computed
// again.
const maxClaims = 20_000

// claims caches the host claim of each ScheduledMachine, so that each version of an object is parsed once. A claim may
// be compared with a thousand others, and a spec may be as large as the API server allows. The zero value is ready for
// use. It is safe for concurrent use.
type claims struct {
	mu sync.Mutex
	by map[client.ObjectKey]claim
}

// A claim is derived from one version of a ScheduledMachine. Callers must not modify the slices in it.
type claim struct {
	claim hosts.Claim
	// record is the owner's request, and request its digest. Both are empty without a request.
	record  v1alpha1.ReclaimRecord
	request string

	uid     types.UID
	version string
}

// of returns the claim of sm, from the cache if its version is the same.
func (k *claims) of(sm *v1alpha1.ScheduledMachine) claim {
	key := client.ObjectKeyFromObject(sm)
	k.mu.Lock()
	known, found := k.by[key]
	k.mu.Unlock()
	if found && known.uid == sm.UID && known.version == sm.ResourceVersion && sm.ResourceVersion != "" {
		return known
	}
	c := claimOf(sm)
	c.uid, c.version = sm.UID, sm.ResourceVersion
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[client.ObjectKey]claim{}
	}
	for other := range k.by {
		if len(k.by) < maxClaims {
			break
		}
		delete(k.by, other)
	}
	k.by[key] = c
	return c
}

// forget removes a deleted object from the cache.
func (k *claims) forget(key client.ObjectKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, key)
}

func claimOf(sm *v1alpha1.ScheduledMachine) claim {
	record, reclaimed := sm.Reclaimed()
	names := specHostIDs(sm)
	c := hosts.Claim{
		Namespace: sm.Namespace, Name: sm.Name, Wants: names, Has: statusHostIDs(sm), Since: since(sm, names),
		Created: sm.CreationTimestamp.Time, Owner: reclaimed && record.Of == "",
	}
	if sm.Status.MachineRef != nil && sm.Status.LastScheduledTime != nil {
		c.MadeAt = sm.Status.LastScheduledTime.Time
	}
	if !c.Owner {
		return claim{claim: c}
	}
	// The digest identifies the request. It has no field that is added later: package reclaim adds the
	// times of a person's request.
	times := sm.Annotations[v1alpha1.ReclaimTimesAnnotation]
	if record.ByPerson() {
		times = ""
	}
	said := fmt.Sprintln(sm.UID, record.Node, record.NodeUID, record.RequestedAt, times)
	return claim{claim: c, record: record, request: digest([]string{said})}
}

// digest returns a hash of the words that does not depend on their order; empty for no words.
func digest(words []string) string {
	if len(words) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(words)), "\n")))
	return hex.EncodeToString(sum[:8])
}

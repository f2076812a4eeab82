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

// maxClaims bounds what is remembered. It is more than one manager has; beyond, some are
// read again.
const maxClaims = 20_000

// claims remembers what ScheduledMachines say of their hosts, so that one version of an
// object is read once: each may be looked at for a thousand others, and its spec may be as
// large as the API server allows. The zero value is ready for use, and it is safe for
// concurrent use.
type claims struct {
	mu sync.Mutex
	by map[client.ObjectKey]claim
}

// A claim is what one version of a ScheduledMachine says. What it refers to must not be
// changed.
type claim struct {
	claim hosts.Claim
	// record is the owner's request, and request says which that is; empty if there is none.
	record  v1alpha1.ReclaimRecord
	request string

	uid     types.UID
	version string
}

// of is what the object itself shows of its claim.
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

// forget forgets an object that is gone.
func (k *claims) forget(key client.ObjectKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, key)
}

func claimOf(sm *v1alpha1.ScheduledMachine) claim {
	record, reclaimed := sm.Reclaimed()
	names := wants(sm)
	c := hosts.Claim{
		Namespace: sm.Namespace, Name: sm.Name, Wants: names, Has: inUse(sm), Since: since(sm, names),
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

// digest stands for words in any order, and is empty for none.
func digest(words []string) string {
	if len(words) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(words)), "\n")))
	return hex.EncodeToString(sum[:8])
}

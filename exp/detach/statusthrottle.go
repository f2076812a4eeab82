// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
)

// countsEvery is the minimum interval between two status writes that change only connection counts. The counts are read
// every second.
const countsEvery = 10 * time.Second

// statusThrottle limits how often progress is written. It is safe for concurrent use. The zero value is ready to use. A
// lost entry causes one additional write.
type statusThrottle struct {
	mu       sync.Mutex
	reported map[pair]time.Time
}

// pair identifies one Node at one load balancer.
type pair struct {
	lb   types.NamespacedName
	node types.UID
}

// due reports whether the progress of a Node at a load balancer is written now.
func (p *statusThrottle) due(lb types.NamespacedName, before, after *expv1.NodeAttachment, now time.Time) bool {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.reported, func(_ pair, at time.Time) bool { return now.Sub(at) >= countsEvery || at.After(now) })
	key := pair{lb, after.UID}
	if _, lately := p.reported[key]; lately && equality.Semantic.DeepEqual(withoutCounts(before), withoutCounts(after)) {
		return false
	}
	if p.reported == nil {
		p.reported = map[pair]time.Time{}
	}
	p.reported[key] = now
	return true
}

// withoutCounts returns the status without connection counts, and without messages, which may contain counts.
func withoutCounts(a *expv1.NodeAttachment) expv1.NodeAttachmentStatus {
	status := *a.Status.DeepCopy()
	for i := range status.Conditions {
		status.Conditions[i].Message = ""
	}
	for i := range status.LoadBalancers {
		lb := &status.LoadBalancers[i]
		lb.Message = ""
		for j := range lb.Members {
			lb.Members[j].Connections = nil
		}
	}
	return status
}

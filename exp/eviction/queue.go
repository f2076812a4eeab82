// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
)

// A queue orders the pods of a policy in one namespace by the resourceVersion of their requests. If two guards decide
// at the same time, neither reads the other's mark. The order makes one of the two pods wait.
type queue struct {
	requests map[types.UID]*evictionv1.RescheduleRequest
	policy   *Policy
	ours     *evictionv1.RescheduleRequest
	now      time.Time
}

func newQueue(requests []evictionv1.RescheduleRequest, policy *Policy, ours *evictionv1.RescheduleRequest, now time.Time) *queue {
	q := &queue{requests: make(map[types.UID]*evictionv1.RescheduleRequest, len(requests)), policy: policy, ours: ours, now: now}
	for i := range requests {
		q.requests[requests[i].Spec.Pod.UID] = &requests[i]
	}
	return q
}

// blocks reports whether another pod counts against maxConcurrent. It counts if it is marked, or if its request is fresh
// and older than ours. A withdrawn request counts for QueueTTL after it was queued: another guard may still write the
// mark. If our request has expired, each fresh one counts, because ours would be queued again behind it.
func (q *queue) blocks(other client.Object) bool {
	if other.GetUID() == q.ours.Spec.Pod.UID {
		return false
	}
	theirs := q.requests[other.GetUID()]
	same := theirs != nil && theirs.Spec.Policy == q.policy.PolicyReference
	request := verdict.Request{Queued: q.ours.CreationTimestamp.Time} // The time at which a person marked the pod is unknown.
	if theirs != nil {
		request = *requestFacts(theirs, verdict.Unknown)
	}
	pod := verdict.Pod{Marked: marked(other, q.policy.Request), MarkedAt: markedAt(other)}
	// An operator may remove its mark when it starts. If requestedTime is older than this pod, it was inherited from its
	// predecessor: this pod is not being moved yet.
	asked, created := request.RequestedAt(pod, q.now), other.GetCreationTimestamp()
	if pod.Marked || same && !asked.IsZero() && !created.After(asked) {
		return !request.Overdue(pod, q.policy.deadline(), q.now)
	}
	return same && request.Fresh(q.now) && (request.Withdrawn || before(theirs, q.ours) || !requestFacts(q.ours, verdict.Unknown).Fresh(q.now))
}

// blocksUnfinished reports whether a pod counts against maxConcurrent. Finished pods do not count.
func (q *queue) blocksUnfinished(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && q.blocks(pod)
}

// before reports whether one request was written before another.
func before(a, b *evictionv1.RescheduleRequest) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return a.Name < b.Name
	}
	return order < 0
}

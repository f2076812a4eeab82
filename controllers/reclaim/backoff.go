// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// firstRetry and maxOwnerRetry bound the back-off while an owner waits for the failed step. The low maximum limits the
// wait of an owner after the end of an outage.
const (
	firstRetry    = 5 * time.Millisecond
	maxOwnerRetry = time.Second
)

// maxNodeRetry bounds the back-off of the remaining steps once the Machine is being deleted. Cluster API carries them
// out, too, but later.
const maxNodeRetry = 15 * time.Second

// retryUrgency is how urgent the next try of an object is.
type retryUrgency int

const (
	// notUrgent: no owner waits. The request is served, or its next step may be delayed.
	notUrgent retryUrgency = iota
	// nodeUrgent: the Machine is being deleted, or gone, but steps for its Node remain.
	nodeUrgent
	// ownerUrgent: the step gives the machine back to its owner.
	ownerUrgent
)

// urgencyOf returns how urgent a step is.
func urgencyOf(s *scope, step lifecycle.Step) retryUrgency {
	switch {
	case step == lifecycle.RecordRequest, step == lifecycle.RestoreRequest, step == lifecycle.DisableSchedule, step == lifecycle.DropRequest, step == lifecycle.Eject && s.refused:
		return ownerUrgent
	case s.scheduled.BeingReclaimed() && step == lifecycle.NoStep:
		return ownerUrgent // The Machine could not be read, so that no step was decided.
	case s.scheduled.BeingReclaimed(), step == lifecycle.Clear, step == lifecycle.DeleteNode:
		return nodeUrgent // The agent makes no new request while its request is on the Node.
	default:
		return notUrgent
	}
}

// reclaimBackoff is the rate limiter of the queue. Its back-off depends on the urgency of the object: objects without a
// waiting owner back off longer and longer.
type reclaimBackoff struct {
	fast, slow workqueue.TypedRateLimiter[ctrl.Request]
	urgency    sync.Map // ctrl.Request to retryUrgency of the next try
}

// setBackoffs sets all back-offs, and returns the rate limiter of the queue. Steps of the owner that cause conflicts
// have the same maximum as steps that fail.
func (r *Reconciler) setBackoffs() workqueue.TypedRateLimiter[ctrl.Request] {
	r.fresh.MaxBackoff, r.nodeWrites.MaxBackoff = maxOwnerRetry, maxNodeRetry
	r.backoff = &reclaimBackoff{
		fast: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, maxOwnerRetry),
		slow: wake.Backoff(),
	}
	return r.backoff
}

// When implements workqueue.TypedRateLimiter.
func (p *reclaimBackoff) When(req ctrl.Request) time.Duration {
	urgency, _ := p.urgency.Load(req)
	switch urgency {
	case ownerUrgent:
		return p.fast.When(req)
	case nodeUrgent:
		return min(p.slow.When(req), maxNodeRetry)
	default:
		return p.slow.When(req)
	}
}

// Forget implements workqueue.TypedRateLimiter.
func (p *reclaimBackoff) Forget(req ctrl.Request) {
	p.fast.Forget(req)
	p.slow.Forget(req)
	p.urgency.Delete(req)
}

// NumRequeues implements workqueue.TypedRateLimiter.
func (p *reclaimBackoff) NumRequeues(req ctrl.Request) int {
	return p.fast.NumRequeues(req) + p.slow.NumRequeues(req)
}

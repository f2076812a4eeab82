// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// firstRetry and longestRetry bound the back-off while an owner waits for the failed step. The low maximum limits the
// wait of an owner after the end of an outage.
const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = time.Second
)

// longestRest bounds the back-off of the remaining steps once the Machine is being deleted. Cluster API carries them
// out, too, but later.
const longestRest = 15 * time.Second

// waits is how urgent the next try of an object is.
type waits int

const (
	// nobodyWaits: no owner waits. The request is served, or its next step may be delayed.
	nobodyWaits waits = iota
	// restWaits: the Machine is being deleted, or gone, but steps for its Node remain.
	restWaits
	// ownerWaits: the step gives the machine back to its owner.
	ownerWaits
)

// waitOf returns how urgent a step is.
func waitOf(s *scope, step lifecycle.Step) waits {
	switch {
	case step == lifecycle.Remember, step == lifecycle.Recall, step == lifecycle.Disarm, step == lifecycle.Forget, step == lifecycle.Eject && s.refused:
		return ownerWaits
	case s.scheduled.BeingReclaimed(), step == lifecycle.Clear, step == lifecycle.DeleteNode:
		return restWaits // The agent makes no new request while its request is on the Node.
	default:
		return nobodyWaits
	}
}

// patience is the rate limiter of the queue. Its back-off depends on the urgency of the object: objects without a
// waiting owner back off longer and longer. newPatience returns one.
type patience struct {
	fast, slow workqueue.TypedRateLimiter[ctrl.Request]
	who        *sync.Map // ctrl.Request to waits
}

func newPatience(slow workqueue.TypedRateLimiter[ctrl.Request]) patience {
	return patience{
		fast: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, longestRetry),
		slow: slow, who: &sync.Map{},
	}
}

// note records the urgency of the next try.
func (p patience) note(req ctrl.Request, who waits) {
	if p.who != nil {
		p.who.Store(req, who)
	}
}

// When implements workqueue.TypedRateLimiter.
func (p patience) When(req ctrl.Request) time.Duration {
	who, _ := p.who.Load(req)
	switch who {
	case ownerWaits:
		return p.fast.When(req)
	case restWaits:
		return min(p.slow.When(req), longestRest)
	default:
		return p.slow.When(req)
	}
}

// Forget implements workqueue.TypedRateLimiter.
func (p patience) Forget(req ctrl.Request) {
	p.fast.Forget(req)
	p.slow.Forget(req)
	p.who.Delete(req)
}

// NumRequeues implements workqueue.TypedRateLimiter.
func (p patience) NumRequeues(req ctrl.Request) int {
	return p.fast.NumRequeues(req) + p.slow.NumRequeues(req)
}

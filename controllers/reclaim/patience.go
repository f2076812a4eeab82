// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// firstRetry and longestRetry bound the back-off while an owner waits for the step that
// failed. An owner who has waited for the end of an outage does not wait for a back-off
// after it.
const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = time.Second
)

// longestRest bounds the back-off of what is left to do for a machine that is on its
// way. Cluster API does it, too, and later.
const longestRest = 15 * time.Second

// waits is whether an owner waits for an object's next try.
type waits int

const (
	// nobodyWaits: it is settled, or asks for what may take a while.
	nobodyWaits waits = iota
	// restWaits: the Machine is on its way, or gone, and its Node is not done with.
	restWaits
	// ownerWaits: the step is one that gives the machine back.
	ownerWaits
)

// waitOf says who waits for a step.
func waitOf(s *scope, step lifecycle.Step) waits {
	switch {
	case step == lifecycle.Remember, step == lifecycle.Recall, step == lifecycle.Disarm, step == lifecycle.Forget, step == lifecycle.Eject && s.refused:
		return ownerWaits
	case s.scheduled.BeingReclaimed(), step == lifecycle.Clear, step == lifecycle.DeleteNode:
		return restWaits // An agent whose request still stands does not ask again.
	default:
		return nobodyWaits
	}
}

// patience is the back-off of the lane. Objects that fail and for which nobody waits
// leave the workers to the others for longer and longer. It is made by newPatience.
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

// note remembers who waits for the next try.
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

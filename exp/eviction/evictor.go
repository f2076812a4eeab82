// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// DefaultNameProtection is the default of Evictor.NameProtection. Drainers retry every 5 to 20 seconds.
const DefaultNameProtection = 10 * time.Minute

const (
	// maxRounds bounds how often an eviction reads the facts: once before each write, and twice more after conflicts.
	maxRounds = 5
	// maxRequester bounds the recorded user name, in bytes.
	maxRequester = 512
)

// An Evictor decides on evictions, and marks pods for their operators. It is safe for concurrent use, and several
// Evictors may run in one cluster.
type Evictor struct {
	// Live reads from the API server.
	Live client.Reader
	// Policies reads policies and namespaces.
	Policies client.Reader
	// Cache reads pods, Nodes and RescheduleRequests from a cache that may be late. It is optional. The Evictor uses it
	// for two answers only: that no policy selects a pod, and "try again". It reads everything else from Live.
	Cache client.Reader
	// Write writes to the workload cluster.
	Write *actuate.Actuator
	// Clock returns the current time.
	Clock clock.PassiveClock
	// Taints are the keys of taints that mark a Node as draining, besides a cordon.
	Taints []string
	// NameProtection is verdict.Facts.NameProtection.
	NameProtection time.Duration
}

// An Attempt is a client's request to evict a pod.
type Attempt struct {
	Pod client.ObjectKey
	// UID is the UID precondition, empty without one.
	UID types.UID
	// By is the name of the user.
	By string
	// DryRun prevents all writes.
	DryRun bool
}

// A Response is the answer to an eviction.
type Response struct {
	verdict.Decision

	// Pod is the pod with that name, nil if there is none.
	Pod *corev1.Pod
	// Policy is the policy that selects the pod, nil if none does.
	Policy *Policy
	// Warnings are shown to the client's user.
	Warnings []string
}

// warn adds the texts that Warnings does not contain yet.
func (s *Response) warn(texts []string) {
	for _, text := range texts {
		if !slices.Contains(s.Warnings, text) {
			s.Warnings = append(s.Warnings, text)
		}
	}
}

// CacheAnswer is the result of a decision from the cache.
type CacheAnswer int

const (
	// Undecided means that the decision needs live reads.
	Undecided CacheAnswer = iota
	// WaitWithoutRequest means that the pod waits, and has no RescheduleRequest yet. The guard answers 429 if it cannot
	// decide on one more pod now; EvictLive must still create the request.
	WaitWithoutRequest
	// Decided means that the response is final.
	Decided
)

// EvictCached decides on an eviction without a call to the API server. It decides in the two cases in which a late
// cache does no harm: no policy selects the pod, or the answer is 429 and needs no write. A wrong 429 costs one retry.
// It needs Cache.
func (e *Evictor) EvictCached(ctx context.Context, w Attempt) (Response, CacheAnswer, error) {
	s, policies, err := e.begin(ctx, w)
	if err != nil {
		return Response{}, Undecided, err
	}
	pod := &corev1.Pod{}
	if e.Cache.Get(ctx, w.Pod, pod) != nil {
		return Response{}, Undecided, nil //nolint:nilerr // the API server is read
	}
	switch selected, err := e.selects(ctx, s, policies, pod); {
	case err != nil:
		return Response{}, Undecided, err
	case selected:
		resp, known := e.evictDraining(ctx, s)
		return resp, known, nil
	case w.UID == "" || w.UID == pod.UID:
		return e.decide(s), Decided, nil
	}
	return Response{}, Undecided, nil
}

// maxResourceVersion is the sort key of a request that is not created yet: the last in the queue.
var maxResourceVersion = strconv.FormatUint(math.MaxUint64, 10)

// evictDraining decides from the cache on a pod that a policy selects, on a Node that is draining.
func (e *Evictor) evictDraining(ctx context.Context, s *scope) (resp Response, known CacheAnswer) {
	node := &corev1.Node{}
	if e.Cache.Get(ctx, client.ObjectKey{Name: s.pod.Spec.NodeName}, node) != nil || !Draining(node, e.Taints) {
		return Response{}, Undecided
	}
	s.node, s.request, known = verdict.Draining, &evictionv1.RescheduleRequest{}, Decided
	switch err := e.Cache.Get(ctx, client.ObjectKey{Namespace: s.pod.Namespace, Name: string(s.pod.UID)}, s.request); {
	case apierrors.IsNotFound(err):
		known = WaitWithoutRequest
		s.request.ResourceVersion, s.request.Spec.Pod.UID = maxResourceVersion, s.pod.UID
	case err != nil:
		return Response{}, Undecided
	}
	resp, waits := e.answersFromCache(ctx, s)
	if !waits || known == WaitWithoutRequest && resp.Outcome != verdict.WaitingForTurn {
		return Response{}, Undecided
	}
	return resp, known
}

// answersFromCache returns a response, and true if it is a 429 without a write. Node and request of the pod are known.
func (e *Evictor) answersFromCache(ctx context.Context, s *scope) (resp Response, waits bool) {
	if s.needsTurn() {
		var err error
		if s.others, err = e.othersCached(ctx, s); err != nil {
			return Response{}, false
		}
	}
	resp = e.decide(s)
	return resp, resp.Answer == verdict.Wait && resp.Write == verdict.None
}

// EvictLive decides on an eviction from live reads.
func (e *Evictor) EvictLive(ctx context.Context, w Attempt) (Response, error) {
	var resp Response
	for range maxRounds {
		s, err := e.observe(ctx, w)
		if err != nil {
			return Response{}, err
		}
		earlier := resp.Warnings
		resp = e.decide(s)
		resp.Warnings = nil
		resp.warn(append(earlier, s.warnings...))
		if w.DryRun {
			return resp, nil
		}
		again, warnings, err := e.act(ctx, s, resp.Decision)
		resp.warn(warnings)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return Response{Decision: verdict.Decision{Outcome: verdict.NotRunning}, Pod: s.pod, Policy: s.policy}, nil // The namespace is being deleted with its pods.
		case resp.Write == verdict.Mark && Refused(err):
			return e.handleRefusedMark(ctx, s, resp, err)
		case err != nil || !again:
			return resp, err
		case resp.Write == verdict.Record && s.request != nil && e.Cache != nil:
			if next, waits := e.answersFromCache(ctx, s); waits {
				resp.Decision = next.Decision
				return resp, nil
			}
		}
	}
	resp.Decision = verdict.Changing(resp.Policy.facts()) // The last round may have written a request, but no mark.
	return resp, nil
}

// handleRefusedMark handles a mark that the API server refused. At the deadline the fallback of the policy applies, as
// for a pod that its operator did not move.
func (e *Evictor) handleRefusedMark(ctx context.Context, s *scope, resp Response, err error) (Response, error) {
	s.refused = true
	late := e.decide(s).Decision
	if late.Outcome != verdict.Overdue {
		return resp, err
	}
	resp.Decision = late
	resp.warn([]string{fmt.Sprintf("its operator could not be asked: %v", err)})
	_, _, err = e.act(ctx, s, late)
	return resp, err
}

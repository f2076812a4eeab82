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
)

// Keep is the default of Evictor.Keep. Drainers retry every 5 to 20 seconds.
const Keep = 10 * time.Minute

const (
	// rounds bounds how often an eviction reads the facts: once before each write, and twice more after conflicts.
	rounds = 5
	// longestRequester bounds the recorded user name, in bytes.
	longestRequester = 512
)

// A Writer writes to the workload cluster.
type Writer interface {
	// Create creates an object.
	Create(ctx context.Context, obj client.Object) error
	// Patch changes exactly this object.
	Patch(ctx context.Context, obj, before client.Object, opts ...client.PatchOption) error
	// Delete deletes exactly this object. An absent object is no error.
	Delete(ctx context.Context, obj client.Object) error
}

// An Evictor decides about evictions, and marks pods for their operators. It is safe for concurrent use, and several
// Evictors may run in one cluster.
type Evictor struct {
	// Live reads from the API server.
	Live client.Reader
	// Policies reads policies and namespaces.
	Policies client.Reader
	// Cache reads pods, Nodes and RescheduleRequests as they were a moment ago; nil reads nothing. It decides
	// that no policy selects a pod, and answers "try again". Everything else is read from Live.
	Cache client.Reader
	// Write writes.
	Write Writer
	// Clock returns the current time.
	Clock clock.PassiveClock
	// Taints are the keys of taints of a Node that is drained, beside a cordon.
	Taints []string
	// Keep is how long an eviction by name does not count for the pod that took the name of a moved pod.
	Keep time.Duration
}

// A Wanted is the request to evict a pod.
type Wanted struct {
	Pod client.ObjectKey
	// UID is the UID precondition, empty without one.
	UID types.UID
	// By is the name of the user.
	By string
	// DryRun: the Evictor writes nothing.
	DryRun bool
}

// A Response is the answer to an eviction.
type Response struct {
	verdict.Decision

	// Pod is the pod of the name, nil if there is none.
	Pod *corev1.Pod
	// Policy selects it, nil if none does.
	Policy *Policy
	// Warnings are for people.
	Warnings []string
}

// warn adds the texts that are not among the warnings yet.
func (s *Response) warn(texts []string) {
	for _, text := range texts {
		if !slices.Contains(s.Warnings, text) {
			s.Warnings = append(s.Warnings, text)
		}
	}
}

// Evict decides about an eviction, and marks the pod if it is its turn. An error means that nothing was decided: the
// caller may call it again.
func (e *Evictor) Evict(ctx context.Context, w Wanted) (Response, error) {
	if resp, known, err := e.EvictCached(ctx, w); known == Decided || err != nil {
		return resp, err
	}
	return e.EvictLive(ctx, w)
}

// CacheAnswer says how far the cache decides an eviction.
type CacheAnswer int

const (
	// Undecided means that the cache is not enough: read the API server.
	Undecided CacheAnswer = iota
	// Unrecorded means that the pod has to wait, and has no RescheduleRequest yet. The guard may answer 429 now;
	// EvictLive creates the request.
	Unrecorded
	// Decided means that the response is final.
	Decided
)

// EvictCached decides about an eviction without a call to the API server, in the two cases in which a late cache does no
// harm: no policy selects the pod, or the answer is 429 and nothing has to be written. A wrong 429 costs one retry.
func (e *Evictor) EvictCached(ctx context.Context, w Wanted) (Response, CacheAnswer, error) {
	if e.Cache == nil {
		return Response{}, Undecided, nil
	}
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
		return s.response(e.Clock.Now(), e.Keep), Decided, nil
	}
	return Response{}, Undecided, nil
}

// maxResourceVersion orders a request that does not exist yet after all others.
var maxResourceVersion = strconv.FormatUint(math.MaxUint64, 10)

// evictDraining decides from the cache about a pod that a policy selects, and whose Node is being drained.
func (e *Evictor) evictDraining(ctx context.Context, s *scope) (resp Response, known CacheAnswer) {
	node := &corev1.Node{}
	if e.Cache.Get(ctx, client.ObjectKey{Name: s.pod.Spec.NodeName}, node) != nil || !Draining(node, e.Taints) {
		return Response{}, Undecided
	}
	s.node, s.request, known = verdict.Draining, &evictionv1.RescheduleRequest{}, Decided
	switch err := e.Cache.Get(ctx, client.ObjectKey{Namespace: s.pod.Namespace, Name: string(s.pod.UID)}, s.request); {
	case apierrors.IsNotFound(err):
		known = Unrecorded
		s.request.ResourceVersion, s.request.Spec.Pod.UID = maxResourceVersion, s.pod.UID
	case err != nil:
		return Response{}, Undecided
	}
	resp, waits := e.answersFromCache(ctx, s)
	if !waits || known == Unrecorded && resp.Outcome != verdict.WaitingForTurn {
		return Response{}, Undecided
	}
	return resp, known
}

// answersFromCache reports whether the cache is enough to answer "try again" about a pod whose Node and request are known.
func (e *Evictor) answersFromCache(ctx context.Context, s *scope) (resp Response, waits bool) {
	if s.needsTurn() {
		var err error
		if s.others, err = e.othersCached(ctx, s); err != nil {
			return Response{}, false
		}
	}
	resp = s.response(e.Clock.Now(), e.Keep)
	return resp, resp.Answer == verdict.Wait && resp.Step == verdict.None
}

// EvictLive decides about an eviction by what the API server says now.
func (e *Evictor) EvictLive(ctx context.Context, w Wanted) (Response, error) {
	var resp Response
	for range rounds {
		s, err := e.observe(ctx, w)
		if err != nil {
			return Response{}, err
		}
		earlier := resp.Warnings
		resp = s.response(e.Clock.Now(), e.Keep)
		resp.Warnings = nil
		resp.warn(append(earlier, s.warnings...))
		if w.DryRun {
			return resp, nil
		}
		again, warnings, err := e.act(ctx, s, resp.Decision)
		resp.warn(warnings)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return Response{Decision: verdict.Decision{Outcome: verdict.NotRunning}, Pod: s.pod, Policy: s.policy}, nil // All pods of the namespace are being deleted.
		case resp.Step == verdict.Mark && Refused(err):
			return e.unasked(ctx, s, resp, err)
		case err != nil || !again:
			return resp, err
		case resp.Step == verdict.Record && s.request != nil && e.Cache != nil:
			if next, waits := e.answersFromCache(ctx, s); waits {
				resp.Decision = next.Decision
				return resp, nil
			}
		}
	}
	return resp, nil // Other guards write the same objects. The client retries.
}

// unasked answers after the API server refused to mark the pod. The fallback of the policy applies at the deadline, as for
// a pod that was not moved in time.
func (e *Evictor) unasked(ctx context.Context, s *scope, resp Response, err error) (Response, error) {
	s.refused = true
	late := verdict.Decide(s.facts(e.Clock.Now(), e.Keep))
	if late.Outcome != verdict.Overdue {
		return resp, err
	}
	resp.Decision = late
	resp.warn([]string{fmt.Sprintf("its operator could not be asked: %v", err)})
	_, _, err = e.act(ctx, s, late)
	return resp, err
}

// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// scope holds the facts about one pod.
type scope struct {
	wanted   Attempt
	pod      *corev1.Pod
	policy   *Policy
	node     verdict.Node
	request  *evictionv1.RescheduleRequest
	moved    []predecessor
	refused  bool
	others   int
	warnings []string
}

// A predecessor is the request for another pod of the same name, with the state of the Node of that pod.
type predecessor struct {
	*evictionv1.RescheduleRequest

	from verdict.Node
}

// decide decides on the facts.
func (e *Evictor) decide(s *scope) Response {
	return Response{Decision: verdict.Decide(s.facts(e.Clock.Now(), e.NameProtection)), Pod: s.pod, Policy: s.policy, Warnings: s.warnings}
}

// needsTurn reports whether the pod waits for its turn: its policy has a maxConcurrent, and the pod is not marked yet.
func (s *scope) needsTurn() bool {
	return s.policy.MaxConcurrent > 0 && s.request != nil && !marked(s.pod, s.request.Spec.Request)
}

func (s *scope) facts(now time.Time, nameProtection time.Duration) verdict.Facts {
	f := verdict.Facts{
		Now: now, UID: string(s.wanted.UID), DryRun: s.wanted.DryRun, Policy: s.policy.facts(), Node: s.node,
		Request: requestFacts(s.request, s.node), Refused: s.refused, Others: s.others, NameProtection: nameProtection,
	}
	for _, m := range s.moved {
		f.Moved = append(f.Moved, *requestFacts(m.RescheduleRequest, m.from))
	}
	if s.pod != nil {
		f.Pod = podFacts(s.pod, s.operatorMark())
	}
	return f
}

// operatorMark returns the mark for the operator: the one in the request if there is a request, because the policy may
// have changed since.
func (s *scope) operatorMark() *evictionv1.Request {
	switch {
	case s.request != nil:
		return &s.request.Spec.Request
	case s.policy != nil:
		return &s.policy.Request
	default:
		return nil
	}
}

// begin reads the policies of a namespace.
func (e *Evictor) begin(ctx context.Context, w Attempt) (*scope, Policies, error) {
	s := &scope{wanted: w}
	policies, invalid, err := PoliciesFor(ctx, e.Policies, w.Pod.Namespace)
	for _, err := range invalid {
		s.warnings = append(s.warnings, err.Error())
	}
	return s, policies, err
}

// observe reads the facts from the API server.
func (e *Evictor) observe(ctx context.Context, w Attempt) (*scope, error) {
	s, policies, err := e.begin(ctx, w)
	if err != nil {
		return nil, err
	}
	cached := &corev1.Pod{}
	if e.Cache == nil || e.Cache.Get(ctx, w.Pod, cached) != nil {
		cached = nil
	}
	return s, e.observePod(ctx, s, policies, cached)
}

// selects reports whether a policy selects the pod and the UID matches. It stores pod and policy in s.
func (e *Evictor) selects(ctx context.Context, s *scope, policies Policies, pod *corev1.Pod) (selected bool, err error) {
	s.pod, s.policy = pod, nil
	if s.wanted.UID != "" && s.wanted.UID != pod.UID || !movable(pod) {
		return false, nil
	}
	s.policy, err = policies.Of(ctx, e.Policies, pod)
	return s.policy != nil, err
}

// observePod reads the pod and the other facts. cached is the pod in the cache, nil if it is not there.
func (e *Evictor) observePod(ctx context.Context, s *scope, policies Policies, cached *corev1.Pod) error {
	started, pod := e.startRead(ctx, cached), &corev1.Pod{}
	switch err := e.Live.Get(ctx, s.wanted.Pod, pod); {
	case kinds.NoObject(err):
		s.pod, s.policy = nil, nil
		return nil
	case err != nil:
		return fmt.Errorf("reading pod: %w", err)
	}
	if selected, err := e.selects(ctx, s, policies, pod); err != nil || !selected {
		return err
	}
	if p := podFacts(pod, nil); p.Finished || p.Leaving {
		return nil
	}
	if cached == nil || cached.UID != pod.UID || cached.Spec.NodeName != pod.Spec.NodeName {
		started = e.startRead(ctx, pod)
	}
	return e.observeSelected(ctx, s, <-started)
}

// nodeAndRequest holds the Node and the request of a pod.
type nodeAndRequest struct {
	node    verdict.Node
	request *evictionv1.RescheduleRequest
	err     error
}

// startRead starts both reads now. The channel delivers the result. pod may be nil: then there is none.
func (e *Evictor) startRead(ctx context.Context, pod *corev1.Pod) <-chan nodeAndRequest {
	done := make(chan nodeAndRequest, 1)
	if pod == nil {
		return done
	}
	go func() {
		var read nodeAndRequest
		var working sync.WaitGroup
		working.Go(func() { read.node = e.nodeOf(ctx, pod.Spec.NodeName) })
		r := &evictionv1.RescheduleRequest{}
		switch err := e.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, r); {
		case err == nil:
			read.request = r
		case !kinds.NoObject(err):
			read.err = fmt.Errorf("reading RescheduleRequest: %w", err)
		}
		working.Wait()
		done <- read
	}()
	return done
}

// observeSelected reads the remaining facts of a pod that a policy selects.
func (e *Evictor) observeSelected(ctx context.Context, s *scope, read nodeAndRequest) error {
	if read.err != nil {
		return read.err
	}
	s.node, s.request = read.node, read.request
	if s.pod.Spec.NodeName == "" || s.node == verdict.Healthy { // On a draining Node, an eviction by name is for the pod of that name.
		if err := e.observeMoved(ctx, s); err != nil {
			return err
		}
	}
	return e.observeOthers(ctx, s)
}

// observeMoved reads the requests for other pods with this name: this pod may have replaced a moved pod.
func (e *Evictor) observeMoved(ctx context.Context, s *scope) error {
	list := &evictionv1.RescheduleRequestList{}
	if err := e.Live.List(ctx, list, client.InNamespace(s.pod.Namespace)); err != nil {
		return fmt.Errorf("listing RescheduleRequests: %w", err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.Pod.Name == s.pod.Name && r.Spec.Pod.UID != s.pod.UID {
			s.moved = append(s.moved, predecessor{RescheduleRequest: r, from: e.nodeOf(ctx, r.Spec.NodeName)})
		}
	}
	return nil
}

// unfinished selects pods that have not ended.
var unfinished = client.MatchingFieldsSelector{Selector: fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)}

// observeOthers counts the other pods of the policy in the namespace that count against maxConcurrent. It reads the API
// server only if the cache shows that the pod may be marked now.
func (e *Evictor) observeOthers(ctx context.Context, s *scope) (err error) {
	if !s.needsTurn() {
		return nil
	}
	if e.Cache != nil {
		if s.others, err = e.othersCached(ctx, s); err == nil && s.others >= int(s.policy.MaxConcurrent) {
			return nil
		}
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := e.Live.List(ctx, pods, client.InNamespace(s.pod.Namespace), client.MatchingLabelsSelector{Selector: s.policy.pods}, unfinished); err != nil {
		return fmt.Errorf("listing pods of %s: %w", s.policy, err)
	}
	requests := &evictionv1.RescheduleRequestList{}
	if err := e.Live.List(ctx, requests, client.InNamespace(s.pod.Namespace)); err != nil {
		return fmt.Errorf("listing RescheduleRequests: %w", err)
	}
	q := newQueue(requests.Items, s.policy, s.request, e.Clock.Now())
	s.others = 0
	for i := range pods.Items {
		if q.blocks(&pods.Items[i]) {
			s.others++
		}
	}
	return nil
}

// othersCached counts the same pods in the cache. It stops at maxConcurrent, and reads the requests with a
// RequestedTime first. The cost of an eviction of a waiting pod is then the same for ten pods and for thousands.
func (e *Evictor) othersCached(ctx context.Context, s *scope) (n int, err error) {
	in, most := client.InNamespace(s.pod.Namespace), int(s.policy.MaxConcurrent)
	asked := &evictionv1.RescheduleRequestList{}
	if err := e.Cache.List(ctx, asked, in, client.MatchingFields{RequestedTimeIndex: s.policy.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	q := newQueue(asked.Items, s.policy, s.request, e.Clock.Now())
	for i := range asked.Items {
		of, pod := asked.Items[i].Spec.Pod, &corev1.Pod{}
		err := e.Cache.Get(ctx, client.ObjectKey{Namespace: s.pod.Namespace, Name: of.Name}, pod, client.UnsafeDisableDeepCopy)
		if err == nil && pod.UID == of.UID && s.policy.pods.Matches(labels.Set(pod.Labels)) && q.blocksUnfinished(pod) {
			if n++; n >= most {
				return n, nil
			}
		}
	}
	pods, requests := &corev1.PodList{}, &evictionv1.RescheduleRequestList{}
	err = errors.Join(
		e.Cache.List(ctx, pods, in, client.MatchingLabelsSelector{Selector: s.policy.pods}, client.UnsafeDisableDeepCopy),
		e.Cache.List(ctx, requests, in, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		return 0, err
	}
	q, n = newQueue(requests.Items, s.policy, s.request, e.Clock.Now()), 0
	for i := 0; i < len(pods.Items) && n < most; i++ {
		if q.blocksUnfinished(&pods.Items[i]) {
			n++
		}
	}
	return n, nil
}

// RequestedTimeIndex is the index of Evictor.Cache over RescheduleRequests with a RequestedTime.
const RequestedTimeIndex = "5spot.finos.org/asked"

// IndexRequestedTime returns the key of a RescheduleRequest in RequestedTimeIndex, its policy. It returns none for a request
// without a RequestedTime.
func IndexRequestedTime(obj client.Object) []string {
	r, ok := obj.(*evictionv1.RescheduleRequest)
	if !ok || r.Spec.RequestedTime.IsZero() {
		return nil
	}
	return []string{(&Policy{PolicyReference: r.Spec.Policy}).String()}
}

// nodeOf returns the state of a Node.
func (e *Evictor) nodeOf(ctx context.Context, name string) verdict.Node {
	if name == "" {
		return verdict.Absent
	}
	node := &corev1.Node{}
	switch err := e.Live.Get(ctx, client.ObjectKey{Name: name}, node); {
	case kinds.NoObject(err):
		return verdict.Absent
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Reading Node", "Node", name)
		return verdict.Unknown
	case Draining(node, e.Taints):
		return verdict.Draining
	default:
		return verdict.Healthy
	}
}

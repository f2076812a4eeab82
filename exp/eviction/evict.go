// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// Keep is for how long a pod that was moved is not taken for one that is to be, if nobody says
// otherwise. A drainer tries again every five to twenty seconds.
const Keep = 10 * time.Minute

const (
	// rounds is how often the facts are looked at: once before each write, and twice more for those
	// that somebody else came first with.
	rounds = 5
	// longestRequester is how much of a user's name is kept.
	longestRequester = 512
)

// A Writer writes to the workload cluster.
type Writer interface {
	// Create creates an object.
	Create(ctx context.Context, obj client.Object) error
	// Patch changes exactly this object.
	Patch(ctx context.Context, obj, before client.Object, opts ...client.PatchOption) error
	// Delete deletes exactly this object. One that is gone is no error.
	Delete(ctx context.Context, obj client.Object) error
}

// An Asker says what is said to those who evict pods, and asks operators to move them. It is safe
// for concurrent use, and several may be at work in one cluster.
type Asker struct {
	// Live reads from the API server, past every cache.
	Live client.Reader
	// Policies reads policies and namespaces.
	Policies client.Reader
	// Glance reads pods as they were a moment ago: whether a policy selects one is told by that. A pod that it
	// does not find, or that is to be moved, is read once more from Live.
	Glance client.Reader
	// Write writes.
	Write Writer
	// Clock tells the time.
	Clock clock.PassiveClock
	// Taints are the keys of taints of a Node that is drained, beside a cordon.
	Taints []string
	// Keep is for how long a pod that was moved is not taken for one that is to be.
	Keep time.Duration
}

// A Wanted is the eviction of a pod that somebody wants.
type Wanted struct {
	Pod client.ObjectKey
	// UID is that of the pod that is meant, empty for any of the name.
	UID types.UID
	// By is the user who wants it.
	By string
	// DryRun has nothing written.
	DryRun bool
}

// A Said is what is said to whoever wanted it.
type Said struct {
	verdict.Decision

	// Pod is the one of that name, nil if there is none.
	Pod *corev1.Pod
	// Policy selects it, nil if none does.
	Policy *Policy
	// Warnings are for people.
	Warnings []string
}

// warn adds what has not been said yet.
func (s *Said) warn(texts []string) {
	for _, text := range texts {
		if !slices.Contains(s.Warnings, text) {
			s.Warnings = append(s.Warnings, text)
		}
	}
}

// Evict says what is said to somebody who wants to evict a pod, once its operator has been asked
// where that is due. After an error nobody knows; it is safe to ask again.
func (a *Asker) Evict(ctx context.Context, w Wanted) (Said, error) {
	var said Said
	for range rounds {
		s, err := a.observe(ctx, w)
		if err != nil {
			return Said{}, err
		}
		said = Said{Decision: verdict.Decide(s.facts(a.Clock.Now(), a.Keep)), Pod: s.pod, Policy: s.policy, Warnings: said.Warnings}
		said.warn(s.warnings)
		if w.DryRun {
			return said, nil
		}
		again, warnings, err := a.act(ctx, s, said.Decision)
		said.warn(warnings)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return Said{Decision: verdict.Decision{Outcome: verdict.NotRunning}, Pod: s.pod, Policy: s.policy}, nil // All of its pods go.
		case said.Step == verdict.Mark && Refused(err):
			return a.unasked(ctx, s, said, err)
		case err != nil || !again:
			return said, err
		}
	}
	return said, nil // Others are at it: whoever evicts waits.
}

// unasked is for an operator that cannot be asked: its pod may not be changed. It is let go like one that was
// not moved in time.
func (a *Asker) unasked(ctx context.Context, s *scope, said Said, err error) (Said, error) {
	s.refused = true
	late := verdict.Decide(s.facts(a.Clock.Now(), a.Keep))
	if late.Outcome != verdict.Overdue {
		return said, err
	}
	said.Decision = late
	said.warn([]string{fmt.Sprintf("its operator could not be asked: %v", err)})
	_, _, err = a.act(ctx, s, late)
	return said, err
}

// scope is all that was read about a pod.
type scope struct {
	wanted   Wanted
	pod      *corev1.Pod
	policy   *Policy
	node     verdict.Node
	request  *evictionv1.RescheduleRequest
	moved    []predecessor
	refused  bool
	others   int
	warnings []string
}

// A predecessor is the request for another pod of the same name, and what is known of the Node of that pod.
type predecessor struct {
	*evictionv1.RescheduleRequest

	from verdict.Node
}

func (s *scope) facts(now time.Time, keep time.Duration) verdict.Facts {
	f := verdict.Facts{
		Now: now, UID: string(s.wanted.UID), Policy: s.policy.facts(), Node: s.node,
		Request: requestFacts(s.request, s.node), Refused: s.refused, Others: s.others, Keep: keep,
	}
	for _, m := range s.moved {
		f.Moved = append(f.Moved, *requestFacts(m.RescheduleRequest, m.from))
	}
	if s.pod != nil {
		f.Pod = podFacts(s.pod, s.asks())
	}
	return f
}

// asks is what asks the operator: what was written down counts before what its policy says since.
func (s *scope) asks() *evictionv1.Request {
	switch {
	case s.request != nil:
		return &s.request.Spec.Request
	case s.policy != nil:
		return &s.policy.Request
	default:
		return nil
	}
}

// observe reads what the answer depends on, and nothing else: of most pods that is one glance at the
// pod. Of one that a policy selects, everything that counts is read past every cache.
func (a *Asker) observe(ctx context.Context, w Wanted) (*scope, error) {
	s := &scope{wanted: w}
	policies, invalid, err := PoliciesFor(ctx, a.Policies, w.Pod.Namespace)
	if err != nil {
		return nil, err
	}
	for _, err := range invalid {
		s.warnings = append(s.warnings, err.Error())
	}
	glance := &corev1.Pod{}
	if err := a.Glance.Get(ctx, w.Pod, glance); err != nil {
		return s, a.observePod(ctx, s, policies, nil)
	}
	selected, err := a.selects(ctx, s, policies, glance)
	if err != nil || !selected && (w.UID == "" || w.UID == glance.UID) {
		return s, err
	}
	return s, a.observePod(ctx, s, policies, glance)
}

// selects reports whether a policy selects a pod that is meant, and keeps both.
func (a *Asker) selects(ctx context.Context, s *scope, policies Policies, pod *corev1.Pod) (selected bool, err error) {
	s.pod, s.policy = pod, nil
	if s.wanted.UID != "" && s.wanted.UID != pod.UID || !movable(pod) {
		return false, nil
	}
	s.policy, err = policies.Of(pod, labelsOf(ctx, a.Policies, pod.Namespace))
	return s.policy != nil, err
}

// observePod reads a pod, and what counts besides. glance is what it looked like, nil if nobody knows.
func (a *Asker) observePod(ctx context.Context, s *scope, policies Policies, glance *corev1.Pod) error {
	side, pod := a.aside(ctx, glance), &corev1.Pod{}
	switch err := a.Live.Get(ctx, s.wanted.Pod, pod); {
	case kinds.NoObject(err):
		s.pod, s.policy = nil, nil
		return nil
	case err != nil:
		return fmt.Errorf("reading pod: %w", err)
	}
	if selected, err := a.selects(ctx, s, policies, pod); err != nil || !selected {
		return err
	}
	if p := podFacts(pod, nil); p.Finished || p.Leaving {
		return nil
	}
	if glance == nil || glance.UID != pod.UID || glance.Spec.NodeName != pod.Spec.NodeName {
		side = a.aside(ctx, pod)
	}
	return a.observeSelected(ctx, s, side)
}

// beside is what is read beside a pod.
type beside struct {
	node    verdict.Node
	request *evictionv1.RescheduleRequest
	err     error
}

// aside reads the Node of a pod and its request side by side: whoever evicts waits for one read. It
// returns at once. pod may be nil.
func (a *Asker) aside(ctx context.Context, pod *corev1.Pod) <-chan beside {
	done := make(chan beside, 1)
	if pod == nil {
		return done
	}
	go func() {
		var b beside
		var working sync.WaitGroup
		working.Go(func() { b.node = a.nodeOf(ctx, pod.Spec.NodeName) })
		r := &evictionv1.RescheduleRequest{}
		switch err := a.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, r); {
		case err == nil:
			b.request = r
		case !kinds.NoObject(err):
			b.err = fmt.Errorf("reading RescheduleRequest: %w", err)
		}
		working.Wait()
		done <- b
	}()
	return done
}

// observeSelected reads what the answer about a pod depends on that its operator moves.
func (a *Asker) observeSelected(ctx context.Context, s *scope, side <-chan beside) error {
	b := <-side
	if b.err != nil {
		return b.err
	}
	s.node, s.request = b.node, b.request
	if s.pod.Spec.NodeName == "" || s.node == verdict.Healthy { // Else it is the one that is to move.
		if err := a.observeMoved(ctx, s); err != nil {
			return err
		}
	}
	return a.observeOthers(ctx, s)
}

// observeMoved reads the requests for other pods of the name: the pod may have taken it from one that was moved.
func (a *Asker) observeMoved(ctx context.Context, s *scope) error {
	list := &evictionv1.RescheduleRequestList{}
	if err := a.Live.List(ctx, list, client.InNamespace(s.pod.Namespace)); err != nil {
		return fmt.Errorf("listing RescheduleRequests: %w", err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.Pod.Name == s.pod.Name && r.Spec.Pod.UID != s.pod.UID {
			s.moved = append(s.moved, predecessor{RescheduleRequest: r, from: a.nodeOf(ctx, r.Spec.NodeName)})
		}
	}
	return nil
}

// unfinished are pods that have not ended.
var unfinished = client.MatchingFieldsSelector{Selector: fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)}

// observeOthers counts the pods of the policy that are being moved in the namespace, where they are limited and
// this one is not among them. Another namespace is another operator's, or has a database of its own.
func (a *Asker) observeOthers(ctx context.Context, s *scope) error {
	if s.policy.MaxConcurrent == 0 || s.request == nil || marked(s.pod, s.request.Spec.Request) {
		return nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := a.Live.List(ctx, pods, client.InNamespace(s.pod.Namespace), client.MatchingLabelsSelector{Selector: s.policy.pods}, unfinished); err != nil {
		return fmt.Errorf("listing pods of %s: %w", s.policy, err)
	}
	requests := &evictionv1.RescheduleRequestList{}
	if err := a.Live.List(ctx, requests, client.InNamespace(s.pod.Namespace)); err != nil {
		return fmt.Errorf("listing RescheduleRequests: %w", err)
	}
	s.others = others(pods.Items, requests.Items, s.policy, s.request, a.Clock.Now())
	return nil
}

// nodeOf is what is known of a Node.
func (a *Asker) nodeOf(ctx context.Context, name string) verdict.Node {
	if name == "" {
		return verdict.Absent
	}
	node := &corev1.Node{}
	switch err := a.Live.Get(ctx, client.ObjectKey{Name: name}, node); {
	case kinds.NoObject(err):
		return verdict.Absent
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Reading Node", "Node", name)
		return verdict.Unknown
	case Draining(node, a.Taints):
		return verdict.Draining
	default:
		return verdict.Healthy
	}
}

// act writes what is decided. again says that the facts are to be looked at once more.
func (a *Asker) act(ctx context.Context, s *scope, d verdict.Decision) (again bool, warnings []string, err error) {
	switch d.Step {
	case verdict.Record:
		return a.record(ctx, s, d)
	case verdict.Queue:
		before := s.request.DeepCopy()
		s.request.Spec.QueuedTime = metav1.NewTime(a.Clock.Now())
		again, err = again409(true, a.Write.Patch(ctx, s.request, before))
		return again, nil, err
	case verdict.Mark:
		warnings = a.trackRequest(ctx, s.request, true)
		again, err = a.ask(ctx, s)
		return again, warnings, err
	case verdict.Confirm:
		again, err = a.confirm(ctx, s, markedAt(s.pod))
		return again, nil, err
	case verdict.Delete:
		again, err = again409(false, a.Write.Delete(ctx, s.pod))
		return again, nil, err
	case verdict.Forget:
		for _, m := range s.moved {
			warnings = append(warnings, a.trackRequest(ctx, m.RescheduleRequest, false)...)
		}
	case verdict.None:
	}
	return false, warnings, nil
}

// ask asks the operator, and writes down when it was asked first: what the pod says others may take away.
func (a *Asker) ask(ctx context.Context, s *scope) (again bool, err error) {
	pod := s.pod.DeepCopy()
	pod.ResourceVersion = "" // So it is sent, too: of those who mark it at the same time one does, and all see when.
	since := a.Clock.Now()
	if at := requestFacts(s.request, s.node).Asked(*podFacts(s.pod, nil), since); !at.IsZero() {
		since = at // The operator has taken the mark away, and gets no more time for that.
	}
	mark(s.pod, s.request.Spec.Request, since)
	again, err = again409(false, a.Write.Patch(ctx, s.pod, pod))
	if again || err != nil || !s.request.Spec.AskedTime.IsZero() {
		return again, err
	}
	return a.confirm(ctx, s, since)
}

// confirm writes down when the operator was asked. It is written once: who comes second need not.
func (a *Asker) confirm(ctx context.Context, s *scope, since time.Time) (again bool, err error) {
	before := s.request.DeepCopy()
	s.request.Spec.AskedTime = metav1.NewTime(since)
	if err = a.Write.Patch(ctx, s.request, before); apierrors.IsInvalid(err) {
		return false, nil
	}
	return again409(false, err)
}

// trackRequest puts the mark of a request on its object, if it has one, or takes it away. What fails is for people.
func (a *Asker) trackRequest(ctx context.Context, r *evictionv1.RescheduleRequest, wanted bool) (warnings []string) {
	if r.Spec.Tracking == nil {
		return nil
	}
	if err := a.track(ctx, r, wanted); err != nil {
		warnings = append(warnings, err.Error())
	}
	return warnings
}

// again409 looks once more where another pod has the name, or the object has changed.
func again409(next bool, err error) (again bool, _ error) {
	if apierrors.IsConflict(err) || kinds.NoObject(err) {
		return true, nil
	}
	return next, err
}

// Refused reports whether a write was refused by a role, a policy or what the object says: trying again does
// not help until somebody changes that.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// record writes down that the operator is asked. The name of the request is the UID of the pod: of
// those who write it at the same time one succeeds, and all go on.
func (a *Asker) record(ctx context.Context, s *scope, d verdict.Decision) (again bool, warnings []string, err error) {
	r := &evictionv1.RescheduleRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.pod.Namespace, Name: string(s.pod.UID)}}
	r.Spec = evictionv1.RescheduleRequestSpec{
		Pod: evictionv1.PodReference{Name: s.pod.Name, UID: s.pod.UID}, NodeName: s.pod.Spec.NodeName,
		Policy: s.policy.PolicyReference, Request: s.policy.Request, Intent: evictionv1.IntentEviction,
		Requester: clip.To(s.wanted.By, longestRequester),
	}
	if d.Relocation {
		r.Spec.Intent = evictionv1.IntentRelocation
	}
	if r.Spec.Tracking, err = a.trackingOf(ctx, s); err != nil {
		warnings = append(warnings, err.Error())
	}
	if err := a.Write.Create(ctx, r); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, warnings, err
	}
	return true, warnings, nil
}

// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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
	// Cache reads pods, Nodes and RescheduleRequests as they were a moment ago; nil reads nothing. It decides
	// that no policy selects a pod, and that an eviction is to be tried again. Everything else is read from Live.
	Cache client.Reader
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

// Evict decides about an eviction, and asks the operator where that is due. After an error nothing is decided;
// it is safe to call it again.
func (a *Asker) Evict(ctx context.Context, w Wanted) (Said, error) {
	if said, known, err := a.EvictCached(ctx, w); known == Decided || err != nil {
		return said, err
	}
	return a.EvictLive(ctx, w)
}

// Known is how much of an answer the cache knows.
type Known int

const (
	// Undecided takes a look at the API server.
	Undecided Known = iota
	// Unrecorded is the answer "try again" for a pod that waits for its turn without a place in the line. It is
	// safe, and a look at the API server gives the pod its place.
	Unrecorded
	// Decided is an answer.
	Decided
)

// EvictCached decides about an eviction without a call to the API server, where a cache that is late does no
// harm: no policy selects the pod, or the eviction is to be tried again and nothing is written. "Try again" is always
// safe: a place in the line that is free already is found by the next eviction.
func (a *Asker) EvictCached(ctx context.Context, w Wanted) (Said, Known, error) {
	if a.Cache == nil {
		return Said{}, Undecided, nil
	}
	s, policies, err := a.begin(ctx, w)
	if err != nil {
		return Said{}, Undecided, err
	}
	pod := &corev1.Pod{}
	if a.Cache.Get(ctx, w.Pod, pod) != nil {
		return Said{}, Undecided, nil //nolint:nilerr // the API server is read
	}
	switch selected, err := a.selects(ctx, s, policies, pod); {
	case err != nil:
		return Said{}, Undecided, err
	case selected:
		said, known := a.waitsOnNode(ctx, s)
		return said, known, nil
	case w.UID == "" || w.UID == pod.UID:
		return s.said(a.Clock.Now(), a.Keep), Decided, nil
	}
	return Said{}, Undecided, nil
}

// last is the resourceVersion of a request that is not recorded yet: it comes after all others.
var last = strconv.FormatUint(math.MaxUint64, 10)

// waitsOnNode decides from the cache about a pod that a policy selects, and whose Node is being drained.
func (a *Asker) waitsOnNode(ctx context.Context, s *scope) (said Said, known Known) {
	node := &corev1.Node{}
	if a.Cache.Get(ctx, client.ObjectKey{Name: s.pod.Spec.NodeName}, node) != nil || !Draining(node, a.Taints) {
		return Said{}, Undecided
	}
	s.node, s.request, known = verdict.Draining, &evictionv1.RescheduleRequest{}, Decided
	switch err := a.Cache.Get(ctx, client.ObjectKey{Namespace: s.pod.Namespace, Name: string(s.pod.UID)}, s.request); {
	case apierrors.IsNotFound(err):
		known = Unrecorded
		s.request.ResourceVersion, s.request.Spec.Pod.UID = last, s.pod.UID
	case err != nil:
		return Said{}, Undecided
	}
	said, waits := a.waits(ctx, s)
	if !waits || known == Unrecorded && said.Outcome != verdict.WaitingForTurn {
		return Said{}, Undecided
	}
	return said, known
}

// waits reports whether the cache is enough to answer "try again" about a pod whose Node and request are known.
func (a *Asker) waits(ctx context.Context, s *scope) (said Said, waits bool) {
	if s.lined() {
		var err error
		if s.others, err = a.othersCached(ctx, s); err != nil {
			return Said{}, false
		}
	}
	said = s.said(a.Clock.Now(), a.Keep)
	return said, said.Answer == verdict.Wait && said.Step == verdict.None
}

// EvictLive decides about an eviction by what the API server says now.
func (a *Asker) EvictLive(ctx context.Context, w Wanted) (Said, error) {
	var said Said
	for range rounds {
		s, err := a.observe(ctx, w)
		if err != nil {
			return Said{}, err
		}
		earlier := said.Warnings
		said = s.said(a.Clock.Now(), a.Keep)
		said.Warnings = nil
		said.warn(append(earlier, s.warnings...))
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
		case said.Step == verdict.Record && s.request != nil && a.Cache != nil:
			if next, waits := a.waits(ctx, s); waits {
				said.Decision = next.Decision
				return said, nil
			}
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

// said is what is decided by what was read.
func (s *scope) said(now time.Time, keep time.Duration) Said {
	return Said{Decision: verdict.Decide(s.facts(now, keep)), Pod: s.pod, Policy: s.policy, Warnings: s.warnings}
}

// lined reports whether the pod waits for its turn: its policy limits how many are moved at a time, and its
// operator has not been asked.
func (s *scope) lined() bool {
	return s.policy.MaxConcurrent > 0 && s.request != nil && !marked(s.pod, s.request.Spec.Request)
}

func (s *scope) facts(now time.Time, keep time.Duration) verdict.Facts {
	f := verdict.Facts{
		Now: now, UID: string(s.wanted.UID), DryRun: s.wanted.DryRun, Policy: s.policy.facts(), Node: s.node,
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

// begin reads the policies of a namespace.
func (a *Asker) begin(ctx context.Context, w Wanted) (*scope, Policies, error) {
	s := &scope{wanted: w}
	policies, invalid, err := PoliciesFor(ctx, a.Policies, w.Pod.Namespace)
	for _, err := range invalid {
		s.warnings = append(s.warnings, err.Error())
	}
	return s, policies, err
}

// observe reads what the answer depends on from the API server.
func (a *Asker) observe(ctx context.Context, w Wanted) (*scope, error) {
	s, policies, err := a.begin(ctx, w)
	if err != nil {
		return nil, err
	}
	cached := &corev1.Pod{}
	if a.Cache == nil || a.Cache.Get(ctx, w.Pod, cached) != nil {
		cached = nil
	}
	return s, a.observePod(ctx, s, policies, cached)
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

// observePod reads a pod, and what counts besides. cached is the pod of the cache, nil if it has none.
func (a *Asker) observePod(ctx context.Context, s *scope, policies Policies, cached *corev1.Pod) error {
	side, pod := a.aside(ctx, cached), &corev1.Pod{}
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
	if cached == nil || cached.UID != pod.UID || cached.Spec.NodeName != pod.Spec.NodeName {
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
// this one is not among them. Another namespace is another operator's, or has a database of its own. The API server
// is read only where the cache shows a free place.
func (a *Asker) observeOthers(ctx context.Context, s *scope) (err error) {
	if !s.lined() {
		return nil
	}
	if a.Cache != nil {
		if s.others, err = a.othersCached(ctx, s); err == nil && s.others >= int(s.policy.MaxConcurrent) {
			return nil
		}
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
	l := newLine(requests.Items, s.policy, s.request, a.Clock.Now())
	s.others = 0
	for i := range pods.Items {
		s.others += l.count(&pods.Items[i])
	}
	return nil
}

// othersCached is observeOthers by the cache.
func (a *Asker) othersCached(ctx context.Context, s *scope) (n int, err error) {
	pods, requests := &corev1.PodList{}, &evictionv1.RescheduleRequestList{}
	in := client.InNamespace(s.pod.Namespace)
	err = errors.Join(
		a.Cache.List(ctx, pods, in, client.MatchingLabelsSelector{Selector: s.policy.pods}, client.UnsafeDisableDeepCopy),
		a.Cache.List(ctx, requests, in, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		return 0, err
	}
	l := newLine(requests.Items, s.policy, s.request, a.Clock.Now())
	for i := range pods.Items {
		if f := podFacts(&pods.Items[i], nil); !f.Finished {
			n += l.count(&pods.Items[i])
		}
	}
	return n, nil
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
	} else {
		r.Labels = map[string]string{evictionv1.ControllerLabel: controllerOf(s.pod)}
		if r.Spec.AskedTime, err = a.askedBefore(ctx, s); err != nil {
			return false, nil, err
		}
	}
	if r.Spec.Tracking, err = a.trackingOf(ctx, s); err != nil {
		warnings = append(warnings, err.Error())
	}
	switch err := a.Write.Create(ctx, r); {
	case err == nil:
		s.request = r
	case !apierrors.IsAlreadyExists(err):
		return false, warnings, err
	}
	return true, warnings, nil
}

// controllerOf is the UID of the controller of a pod, empty if it has none.
func controllerOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return string(owner.UID)
	}
	return ""
}

// askedBefore is since when the operator has been asked to move the pod that this one replaces, zero if it replaces
// none. An operator that starts a pod again on the Node that is being drained gains no time, and the drain ends.
func (a *Asker) askedBefore(ctx context.Context, s *scope) (first metav1.Time, err error) {
	reader := a.Cache
	if reader == nil {
		reader = a.Live
	}
	list := &evictionv1.RescheduleRequestList{}
	if err := reader.List(ctx, list, client.InNamespace(s.pod.Namespace)); err != nil {
		return first, fmt.Errorf("listing RescheduleRequests: %w", err)
	}
	controller := controllerOf(s.pod)
	for i := range list.Items {
		r := &list.Items[i]
		of, sameDrain := r.Labels[evictionv1.ControllerLabel]
		replaced := sameDrain && (r.Spec.Pod.Name == s.pod.Name || controller != "" && of == controller)
		if !replaced || r.Spec.Pod.UID == s.pod.UID || r.Spec.NodeName != s.pod.Spec.NodeName ||
			r.Spec.Policy != s.policy.PolicyReference || r.Spec.AskedTime.IsZero() || s.pod.CreationTimestamp.Before(&r.Spec.AskedTime) {
			continue
		}
		if first.IsZero() || r.Spec.AskedTime.Before(&first) {
			first = r.Spec.AskedTime
		}
	}
	return first, nil
}

// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// act carries out the step of a decision. If again is true, the caller must read the facts again.
func (e *Evictor) act(ctx context.Context, s *scope, d verdict.Decision) (again bool, warnings []string, err error) {
	switch d.Write {
	case verdict.Record:
		return e.record(ctx, s, d)
	case verdict.Queue:
		before := s.request.DeepCopy()
		s.request.Spec.QueuedTime = metav1.NewTime(e.Clock.Now())
		again, err = rereadOnConflict(true, e.Write.Patch(ctx, s.request, before))
		return again, nil, err
	case verdict.Mark:
		warnings = e.trackRequest(ctx, s.request, true)
		again, err = e.markPod(ctx, s)
		if again && apierrors.IsNotFound(e.Live.Get(ctx, client.ObjectKeyFromObject(s.request), &evictionv1.RescheduleRequest{})) {
			// The request was withdrawn meanwhile, with its tracking mark.
			warnings = append(warnings, e.trackRequest(ctx, s.request, false)...)
		}
		return again, warnings, err
	case verdict.Confirm:
		again, err = e.confirm(ctx, s, markedAt(s.pod))
		return again, nil, err
	case verdict.Delete:
		again, err = rereadOnConflict(false, e.Write.Delete(ctx, s.pod))
		return again, nil, err
	case verdict.RemoveTrackingMark:
		for _, m := range s.moved {
			warnings = append(warnings, e.trackRequest(ctx, m.RescheduleRequest, false)...)
		}
	case verdict.None:
	}
	return false, warnings, nil
}

// markPod marks the pod for its operator, and records the time in the request, because another client may remove the
// mark.
func (e *Evictor) markPod(ctx context.Context, s *scope) (again bool, err error) {
	pod := s.pod.DeepCopy()
	pod.ResourceVersion = "" // The patch then carries resourceVersion: of two guards that mark the pod, one gets a conflict.
	since := e.Clock.Now()
	if made := s.request.CreationTimestamp.Time; since.Before(made) {
		since = made // Our clock may be behind; an earlier time would shorten the deadline.
	}
	if at := requestFacts(s.request, s.node).RequestedAt(*podFacts(s.pod, nil), since); !at.IsZero() {
		since = at // The operator removed the mark. The first deadline continues.
	}
	mark(s.pod, s.request.Spec.Request, since)
	again, err = rereadOnConflict(false, e.Write.Patch(ctx, s.pod, pod))
	if again || err != nil || !s.request.Spec.RequestedTime.IsZero() {
		return again, err
	}
	return e.confirm(ctx, s, since)
}

// confirm records when the guard marked the pod, as RequestedTime. The field is immutable: if another guard has set it,
// confirm ignores the error.
func (e *Evictor) confirm(ctx context.Context, s *scope, since time.Time) (again bool, err error) {
	before := s.request.DeepCopy()
	s.request.Spec.RequestedTime = metav1.NewTime(since)
	if err = e.Write.Patch(ctx, s.request, before); apierrors.IsInvalid(err) {
		return false, nil
	}
	return rereadOnConflict(false, err)
}

// trackRequest is track with a warning of the answer instead of an error.
func (e *Evictor) trackRequest(ctx context.Context, r *evictionv1.RescheduleRequest, wanted bool) (warnings []string) {
	if err := e.track(ctx, r, wanted); err != nil {
		warnings = append(warnings, err.Error())
	}
	return warnings
}

// rereadOnConflict returns again if err is a conflict or if the object is gone, otherwise next and err.
func rereadOnConflict(next bool, err error) (again bool, _ error) {
	if apierrors.IsConflict(err) || kinds.NoObject(err) {
		return true, nil
	}
	return next, err
}

// Refused reports whether the API server rejected a write because of a role, a policy or the object itself. A retry
// fails until one of these changes.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// record creates the request of a pod. The UID of the pod is its name: if several guards create it, one succeeds, and
// all of them continue.
func (e *Evictor) record(ctx context.Context, s *scope, d verdict.Decision) (again bool, warnings []string, err error) {
	r := &evictionv1.RescheduleRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.pod.Namespace, Name: string(s.pod.UID)}}
	r.Spec = evictionv1.RescheduleRequestSpec{
		Pod: evictionv1.PodReference{Name: s.pod.Name, UID: s.pod.UID}, NodeName: s.pod.Spec.NodeName,
		Policy: s.policy.PolicyReference, Request: s.policy.Request, Intent: evictionv1.IntentEviction,
		Requester: clip.To(s.wanted.By, maxRequester),
	}
	if d.Relocation {
		r.Spec.Intent = evictionv1.IntentRelocation
	} else {
		r.Labels = map[string]string{evictionv1.ControllerLabel: controllerOf(s.pod)}
		if r.Spec.RequestedTime, err = e.previousRequestedTime(ctx, s); err != nil {
			return false, nil, err
		}
	}
	if r.Spec.Tracking, err = e.trackingOf(ctx, s); err != nil {
		warnings = append(warnings, err.Error())
	}
	switch err := e.Write.Create(ctx, r); {
	case err == nil:
		s.request = r
	case !apierrors.IsAlreadyExists(err):
		return false, warnings, err
	}
	return true, warnings, nil
}

// controllerOf returns the UID of the controller of a pod, empty if it has none.
func controllerOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return string(owner.UID)
	}
	return ""
}

// longestLag bounds how far the cache lags behind. It may lack the request of the predecessor of a pod that is younger,
// whose deadline would then start again: for such a pod the list is live. Nearly all pods are older.
const longestLag = time.Minute

// previousRequestedTime returns the requestedTime of the pod that this pod replaces, zero if there is none. A pod that is
// recreated on a draining Node keeps the first deadline; otherwise an operator that ignores the cordon would block the
// drain forever. The leader removes the controller label when a drain ends. If no leader ran then, a
// requestedTime before the Node was cordoned shows that it belongs to an earlier drain.
func (e *Evictor) previousRequestedTime(ctx context.Context, s *scope) (first metav1.Time, err error) {
	reader := e.Cache
	if reader == nil || e.Clock.Now().Before(s.pod.CreationTimestamp.Add(longestLag)) {
		reader = e.Live
	}
	list := &evictionv1.RescheduleRequestList{}
	if err := reader.List(ctx, list, client.InNamespace(s.pod.Namespace), client.HasLabels{evictionv1.ControllerLabel}); err != nil {
		return first, fmt.Errorf("listing RescheduleRequests: %w", err)
	}
	var asked []metav1.Time
	controller := controllerOf(s.pod)
	for i := range list.Items {
		r := &list.Items[i]
		replaced := r.Spec.Pod.Name == s.pod.Name || controller != "" && r.Labels[evictionv1.ControllerLabel] == controller
		if !replaced || r.Spec.Pod.UID == s.pod.UID || r.Spec.NodeName != s.pod.Spec.NodeName ||
			r.Spec.Policy != s.policy.PolicyReference || r.Spec.RequestedTime.IsZero() || s.pod.CreationTimestamp.Before(&r.Spec.RequestedTime) {
			continue
		}
		asked = append(asked, r.Spec.RequestedTime)
	}
	if len(asked) == 0 {
		return first, nil
	}
	cordoned, err := e.cordonedAt(ctx, s.pod.Spec.NodeName)
	for _, at := range asked {
		if !at.Before(cordoned) && (first.IsZero() || at.Before(&first)) {
			first = at
		}
	}
	return first, err
}

// cordonedAt returns when Kubernetes tainted a cordoned Node. It returns nil if the time is unknown, or if the Node is
// draining for another reason besides the cordon.
func (e *Evictor) cordonedAt(ctx context.Context, name string) (*metav1.Time, error) {
	node := &corev1.Node{}
	if err := e.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil, fmt.Errorf("reading Node: %w", err)
	}
	node.Spec.Unschedulable = false
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
	if i < 0 || Draining(node, e.Taints) {
		return nil, nil
	}
	return node.Spec.Taints[i].TimeAdded, nil
}

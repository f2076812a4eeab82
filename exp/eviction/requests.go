// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// A RequestResult is the outcome of one reconcile of a request.
type RequestResult struct {
	Change verdict.Change
	// Again is when to reconcile it again, zero to wait for a change.
	Again time.Time
	// Request is the request before the reconcile, nil if there is none.
	Request *evictionv1.RescheduleRequest
	// Pod is the pod of the request, nil if it is gone.
	Pod *corev1.Pod
	// Overdue reports that the deadline of the operator has passed.
	Overdue bool
}

// ReconcileRequest carries out the next step of a request: it withdraws a request that has no drain or policy any more,
// removes the mark of its pod, or deletes the request of a pod that is gone. One Evictor in a cluster may do it.
func (e *Evictor) ReconcileRequest(ctx context.Context, key client.ObjectKey) (RequestResult, error) {
	r := &evictionv1.RescheduleRequest{}
	switch err := e.Live.Get(ctx, key, r); {
	case kinds.NoObject(err):
		return RequestResult{}, nil
	case err != nil:
		return RequestResult{}, fmt.Errorf("reading RescheduleRequest: %w", err)
	}
	k, pod, err := e.observeRequest(ctx, r)
	if err != nil {
		return RequestResult{}, err
	}
	done := RequestResult{Request: r.DeepCopy(), Pod: pod}
	done.Overdue = pod != nil && k.Deadline > 0 && k.Overdue(*k.Pod, k.Deadline, k.Now)
	done.Change, done.Again = verdict.DecideRequest(k)
	switch done.Change {
	case verdict.Withdraw:
		before := r.DeepCopy()
		r.Spec.Intent, r.Spec.WithdrawnTime = evictionv1.IntentWithdrawn, metav1.NewTime(k.Now)
		delete(r.Labels, evictionv1.ControllerLabel)
		done.Again = k.Now.Add(verdict.MarkRemovalDelay)
		return done, e.Write.Patch(ctx, r, before)
	case verdict.RemoveMark:
		before := pod.DeepCopy()
		unmark(pod, r)
		switch err := e.Write.Patch(ctx, pod, before); {
		case Refused(err) && !k.Now.Before(k.WithdrawnAt.Add(k.NameProtection)): // Delete it, or its pod could never be evicted.
			ctrl.LoggerFrom(ctx).Error(err, "Leaving what asks the operator on the pod", "Pod", client.ObjectKeyFromObject(pod))
		case kinds.IgnoreNoObject(err) != nil:
			return done, err
		}
		return done, e.drop(ctx, r)
	case verdict.Drop:
		return done, e.drop(ctx, r)
	case verdict.NoChange:
		if pod == nil {
			return done, e.recordPodGone(ctx, r, k)
		}
	}
	return done, nil
}

// recordPodGone removes the tracking mark, and records since when the pod is gone. The controller label marks requests of
// the current drain. It goes when the drain ends, so that the next drain starts a new deadline.
func (e *Evictor) recordPodGone(ctx context.Context, r *evictionv1.RescheduleRequest, k verdict.RequestFacts) error {
	if err := e.untrack(ctx, r); err != nil {
		return err
	}
	before := r.DeepCopy()
	r.Spec.PodTerminatedTime = metav1.NewTime(k.GoneSince)
	if k.Node == verdict.Healthy {
		delete(r.Labels, evictionv1.ControllerLabel)
	}
	return e.Write.Patch(ctx, r, before)
}

// observeRequest reads the facts of a request, and its pod, nil if the pod is gone.
func (e *Evictor) observeRequest(ctx context.Context, r *evictionv1.RescheduleRequest) (verdict.RequestFacts, *corev1.Pod, error) {
	k := verdict.RequestFacts{Now: e.Clock.Now(), NameProtection: e.NameProtection, WithdrawnAt: r.Spec.WithdrawnTime.Time}
	k.Request = *requestFacts(r, verdict.Unknown)
	pod := &corev1.Pod{}
	err := e.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.Pod.Name}, pod)
	if client.IgnoreNotFound(err) != nil {
		return k, nil, fmt.Errorf("reading pod: %w", err)
	}
	if err == nil {
		k.Pod, k.Same = podFacts(pod, &r.Spec.Request), pod.UID == r.Spec.Pod.UID
	}
	if k.Pod == nil || !k.Same || k.Pod.Finished {
		if k.GoneSince = r.Spec.PodTerminatedTime.Time; k.GoneSince.IsZero() || k.GoneSince.After(k.Now) { // A clock was ahead.
			k.GoneSince = k.Now
		}
		k.Node = e.nodeOf(ctx, r.Spec.NodeName)
		return k, nil, nil
	}
	for _, reader := range []client.Reader{e.Policies, e.Live} { // The cache may lack a new policy.
		if err := e.observePolicy(ctx, reader, r, pod, &k); err != nil {
			return k, nil, err
		}
		if k.Selected {
			break
		}
	}
	k.Node = e.nodeOf(ctx, pod.Spec.NodeName)
	return k, pod, nil
}

// observePolicy reads the policy that selects the pod of the request.
func (e *Evictor) observePolicy(ctx context.Context, reader client.Reader, r *evictionv1.RescheduleRequest, pod *corev1.Pod, k *verdict.RequestFacts) error {
	policies, invalid, err := PoliciesFor(ctx, reader, pod.Namespace)
	if err != nil {
		return err
	}
	policy, err := policies.Of(ctx, reader, pod)
	if err != nil {
		return err
	}
	// An invalid policy may select the pod. A policy with another mark needs a new RescheduleRequest.
	k.Selected = policy == nil && len(invalid) > 0 || policy != nil && equality.Semantic.DeepEqual(policy.Request, r.Spec.Request)
	k.Deadline, k.Relocation = 0, false
	if policy != nil {
		k.Deadline, k.Relocation = policy.deadline(), policy.HealthyNode == evictionv1.HealthyNodeRelocate && r.Spec.Intent == evictionv1.IntentRelocation
	}
	return nil
}

// drop removes the tracking mark, then deletes the request.
func (e *Evictor) drop(ctx context.Context, r *evictionv1.RescheduleRequest) error {
	if err := e.untrack(ctx, r); err != nil {
		return err
	}
	return e.Write.Delete(ctx, r)
}

// untrack removes the tracking mark of a request. If the API server refuses the write, the mark stays: it blocks no
// pod.
func (e *Evictor) untrack(ctx context.Context, r *evictionv1.RescheduleRequest) error {
	err := e.track(ctx, r, false)
	if actuate.Gone(err) || Refused(err) {
		ctrl.LoggerFrom(ctx).Error(err, "Leaving mark behind", "Pod", client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.Pod.Name})
		return nil
	}
	return err
}

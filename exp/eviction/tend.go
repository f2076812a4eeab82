// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// A Tender withdraws requests that nobody wants any more, and deletes those whose pod has gone. One is
// at work in a cluster.
type Tender struct {
	*Asker

	// gone is since when a pod is known to be gone whose name nobody has taken. A Tender that comes
	// later keeps the request for longer.
	mu   sync.Mutex
	gone map[types.UID]time.Time
}

// A Tended is what became of a request.
type Tended struct {
	Fate verdict.Fate
	// Again is when it is to be looked at again; zero is when something changes.
	Again time.Time
	// Request is as it was before, nil if there is none.
	Request *evictionv1.RescheduleRequest
	// Pod is the one that it is for, nil if that is gone.
	Pod *corev1.Pod
	// Overdue says that the operator has had its time for it.
	Overdue bool
}

// Tend looks at a request, and does what is due.
func (t *Tender) Tend(ctx context.Context, key client.ObjectKey) (Tended, error) {
	r := &evictionv1.RescheduleRequest{}
	switch err := t.Live.Get(ctx, key, r); {
	case kinds.NoObject(err):
		return Tended{}, nil
	case err != nil:
		return Tended{}, fmt.Errorf("reading RescheduleRequest: %w", err)
	}
	k, pod, err := t.kept(ctx, r)
	if err != nil {
		return Tended{}, err
	}
	done := Tended{Request: r.DeepCopy(), Pod: pod}
	if pod != nil && k.Deadline > 0 {
		since := k.Asked(*k.Pod, k.Now)
		done.Overdue = !since.IsZero() && !k.Now.Before(since.Add(k.Deadline))
	}
	done.Fate, done.Again = verdict.Tend(k)
	switch done.Fate {
	case verdict.Withdraw:
		before := r.DeepCopy()
		r.Spec.Intent, r.Spec.WithdrawnTime = evictionv1.IntentWithdrawn, metav1.NewTime(k.Now)
		done.Again = k.Now.Add(verdict.Settle)
		return done, t.Write.Patch(ctx, r, before)
	case verdict.TakeBack:
		before := pod.DeepCopy()
		unmark(pod, r.Spec.Request)
		if err := t.Write.Patch(ctx, pod, before); kinds.IgnoreNoObject(err) != nil {
			return done, err
		}
		return done, t.drop(ctx, r)
	case verdict.Drop:
		return done, t.drop(ctx, r)
	case verdict.Stays:
	}
	return done, nil
}

// kept is the border between Kubernetes and the decision.
func (t *Tender) kept(ctx context.Context, r *evictionv1.RescheduleRequest) (verdict.Kept, *corev1.Pod, error) {
	k := verdict.Kept{Now: t.Clock.Now(), Keep: t.Keep, WithdrawnAt: r.Spec.WithdrawnTime.Time}
	k.Request = *requestFacts(r, verdict.Unknown)
	pod := &corev1.Pod{}
	err := t.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.Pod.Name}, pod)
	if client.IgnoreNotFound(err) != nil {
		return k, nil, fmt.Errorf("reading pod: %w", err)
	}
	if err == nil {
		k.Pod, k.Same = podFacts(pod, &r.Spec.Request), pod.UID == r.Spec.Pod.UID
	}
	if k.Pod == nil || !k.Same || k.Pod.Finished {
		k.GoneSince = t.goneSince(r.UID, k.Now)
		return k, nil, nil
	}
	policies, invalid, err := PoliciesFor(ctx, t.Policies, pod.Namespace)
	if err != nil {
		return k, nil, err
	}
	policy, err := policies.Of(pod, labelsOf(ctx, t.Policies, pod.Namespace))
	if err != nil {
		return k, nil, err
	}
	// Nobody knows what an invalid one selects. One that asks for something else asks anew.
	k.Selected = policy == nil && len(invalid) > 0 || policy != nil && equality.Semantic.DeepEqual(policy.Request, r.Spec.Request)
	if policy != nil {
		k.Deadline = policy.deadline()
	} else {
		k.Relocation = false
	}
	k.Node = t.nodeOf(ctx, pod.Spec.NodeName)
	return k, pod, nil
}

// goneSince is since when the pod of a request is known to be gone.
func (t *Tender) goneSince(request types.UID, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone == nil {
		t.gone = map[types.UID]time.Time{}
	}
	if _, known := t.gone[request]; !known {
		t.gone[request] = now
	}
	return t.gone[request]
}

// drop deletes a request, and the mark by which others know of it. A mark that is refused to us stays: no
// pod is held back for it.
func (t *Tender) drop(ctx context.Context, r *evictionv1.RescheduleRequest) error {
	if r.Spec.Tracking != nil {
		switch err := t.track(ctx, r, false); {
		case actuate.Gone(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			ctrl.LoggerFrom(ctx).Error(err, "Leaving mark behind", "Pod", client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.Pod.Name})
		case err != nil:
			return err
		}
	}
	if err := t.Write.Delete(ctx, r); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.gone, r.UID)
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxNote is the limit of an Event's note in the events API, in bytes.
const maxNote = 1024

// report writes the condition, and then records an Event.
func (r *Reconciler) report(ctx context.Context, sm *v1alpha1.ScheduledMachine, v Verdict) error {
	before := sm.DeepCopy()
	if v.Drop {
		conditions.Delete(sm, v1alpha1.OwnerProtectedCondition)
	} else {
		conditions.Set(sm, metav1.Condition{
			Type: v1alpha1.OwnerProtectedCondition, Status: v.Status, Reason: v.Reason, Message: clip.Message(v.Message),
			LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		})
	}
	if err := r.Actuate.PatchStatus(ctx, sm, before); err != nil {
		return err
	}
	r.announce(sm, conditions.Get(before, v1alpha1.OwnerProtectedCondition), v)
	return nil
}

// announce records an Event when protection is lost or missing, and when it is restored. It records none for a machine
// that is protected from the start.
func (r *Reconciler) announce(sm *v1alpha1.ScheduledMachine, last *metav1.Condition, v Verdict) {
	lost := last != nil && last.Status == metav1.ConditionFalse
	switch {
	case v.Status == metav1.ConditionFalse && !lost:
		r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.OwnerUnprotectedEvent, "LookAtReclaimAgent",
			"%s", clip.To("The agent does not look for the owner's programs: "+v.Message, maxNote))
	case v.Status == metav1.ConditionTrue && lost:
		r.Recorder.Eventf(sm, nil, corev1.EventTypeNormal, v1alpha1.OwnerProtectedEvent, "LookAtReclaimAgent",
			"%s", clip.To("The agent looks for the owner's programs again: "+v.Message, maxNote))
	}
}

// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxMessage bounds the message in the condition and the Event, in bytes. A long list may have many errors.
const maxMessage = 1024

// report writes the condition, and records an Event if it changed. A Cluster without the variable and without
// ScheduledMachines has no condition.
func (r *Reconciler) report(ctx context.Context, s *scope, d decision, actErr error) error {
	cluster, before := s.cluster, s.cluster.DeepCopy()
	c := conditionOf(s, d, actErr)
	if !s.found && len(s.owned) == 0 && actErr == nil {
		conditions.Delete(cluster, c.Type)
		return r.Actuate.PatchStatus(ctx, cluster, before)
	}
	c.LastTransitionTime = metav1.NewTime(r.Clock.Now())
	conditions.Set(cluster, c)
	if err := r.Actuate.PatchStatus(ctx, cluster, before); err != nil {
		return err
	}
	if old := conditions.Get(before, c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		return nil
	}
	kind := corev1.EventTypeNormal
	switch c.Reason {
	case v1alpha1.VariableInvalidReason, v1alpha1.NameConflictReason, v1alpha1.ApplyFailedReason:
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(cluster, nil, kind, c.Reason, "ApplyScheduledMachines", "%s", c.Message)
	return nil
}

// conditionOf returns the condition of the Cluster. The same state gives the same message.
func conditionOf(s *scope, d decision, actErr error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ScheduledMachinesAppliedCondition, Status: metav1.ConditionFalse}
	switch {
	case len(s.invalid) > 0:
		messages := make([]string, 0, len(s.invalid))
		for _, e := range s.invalid {
			messages = append(messages, e.Error())
		}
		c.Reason = v1alpha1.VariableInvalidReason
		c.Message = "nothing is changed: " + strings.Join(messages, "; ")
	case errors.Is(actErr, errTaken):
		c.Reason, c.Message = v1alpha1.NameConflictReason, joined(actErr)
	case actErr != nil:
		c.Reason, c.Message = v1alpha1.ApplyFailedReason, joined(actErr)
	case len(d.leaving) > 0:
		c.Reason = v1alpha1.MachinesDeletingReason
		c.Message = "ScheduledMachines are leaving: " + strings.Join(d.leaving, ", ")
	case len(d.paused) > 0:
		c.Reason = v1alpha1.MachinesPausedReason
		c.Message = "paused ScheduledMachines differ from the topology: " + strings.Join(d.paused, ", ")
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.VariableAppliedReason
		c.Message = fmt.Sprintf("Exactly the %d ScheduledMachines of the topology exist", len(s.desired))
	}
	c.Message = clip.To(c.Message, maxMessage)
	return c
}

// joined returns the text of joined errors on one line.
func joined(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// Fields whose last writer is shown, besides writer.Enabled.
var (
	specFields      = fieldpath.MakePathOrDie("spec")
	killSwitchField = fieldpath.MakePathOrDie("spec", "killSwitch")
	requestField    = fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.EmergencyReclaimAnnotation)
)

// Explanations of a machine on which no controller acts.
const (
	pausedWhy   = "it is paused: nothing is done, not even for its owner"
	notObserved = "the controller has not seen the latest change yet"
)

const (
	// unservedAfter is the time after which an unserved machine is reported. Another replica takes over within a lease
	// of 15 s.
	unservedAfter = 30 * time.Second
	// seenUnservedAfter is unservedAfter for a request that a manager has seen. The phase may wait a minute for other
	// owners: see wake.ReclaimTracker.
	seenUnservedAfter = 90 * time.Second
)

// waitingSince returns since when a manager should have acted on m, zero if m does not wait for one. Managers report no
// liveness, so overdue work is the evidence. All times are the API server's.
func waitingSince(m *v1alpha1.ScheduledMachine, now time.Time) time.Time {
	leaving := !m.DeletionTimestamp.IsZero() || m.Spec.KillSwitch
	switch {
	case paused(m), suppressed(m) != nil: // The status explains the wait.
		return time.Time{}
	case m.DeletionTimestamp.IsZero() && !slices.Contains(m.Finalizers, v1alpha1.ScheduledMachineFinalizer):
		return m.CreationTimestamp.Time
	case m.Status.ObservedGeneration < m.Generation:
		return lastChange(m)
	case m.BeingReclaimed() && !beingServed(m):
		at := writer.Last(m.ManagedFields, requestField).Time()
		if r, _ := m.ReclaimRequest(); r.SeenAt != "" && now.Sub(at) < seenUnservedAfter {
			return time.Time{}
		}
		return at
	case leaving:
		return time.Time{}
	}
	edges := []*metav1.Time{m.Status.NextActivation, m.Status.NextCleanup}
	if gateOf(m) != nil { // A rail holds the machine, whose window may have closed.
		edges = edges[:1]
	}
	for _, edge := range edges {
		if edge != nil && edge.Time.Before(now) {
			return edge.Time
		}
	}
	return time.Time{}
}

// candidateOf converts a deferred machine to the planner's input, as far as its status allows. The status does not show
// when a delete call failed.
func candidateOf(m *v1alpha1.ScheduledMachine) departurecap.Candidate {
	c := departurecap.Candidate{Name: m.Namespace + "/" + m.Name, Lane: departurecap.Unscheduled, Priority: m.PriorityOrDefault()}
	if gate := gateOf(m); gate != nil {
		c.Since = gate.LastTransitionTime.Time
	}
	st := &m.Status
	if st.NextCleanup == nil || st.NextCleanupAnnouncedTime == nil || st.InSchedule {
		return c
	}
	end := st.NextCleanup.Time
	if rails.Announced(end, st.NextCleanupAnnouncedTime.Time, st.ObservedGeneration, m.Generation) {
		c.Lane, c.End, c.Since = departurecap.Scheduled, end, end
	}
	return c
}

// lastChange returns when the spec of m was last changed, or when m was deleted if that is later.
func lastChange(m *v1alpha1.ScheduledMachine) time.Time {
	at := writer.Last(m.ManagedFields, specFields).Time()
	if d := m.DeletionTimestamp; d != nil && d.After(at) {
		return d.Time
	}
	return at
}

// beingServed reports whether a manager has observed the request of m. The kill switch and a deletion take precedence
// over it, with phases of their own, and either may be in PhaseError.
func beingServed(m *v1alpha1.ScheduledMachine) bool {
	switch m.Status.Phase {
	case v1alpha1.PhaseEmergencyRemove:
		return true
	case v1alpha1.PhaseTerminated:
		return m.Spec.KillSwitch
	case v1alpha1.PhaseError:
		return m.Spec.KillSwitch || !m.DeletionTimestamp.IsZero()
	default:
		return false
	}
}

// unserved reports whether m has waited for a manager for unservedAfter or longer.
func unserved(m *v1alpha1.ScheduledMachine, now time.Time) bool {
	since := waitingSince(m, now)
	return !since.IsZero() && now.Sub(since) >= unservedAfter
}

// unservedNotes returns a note if no manager seems to serve m.
func unservedNotes(m *v1alpha1.ScheduledMachine, now time.Time) []string {
	if !unserved(m, now) {
		return nil
	}
	return []string{unservedNote("it", m, now)}
}

// unservedNote returns the note about a machine that is unserved. subject is its name in the sentence.
func unservedNote(subject string, m *v1alpha1.ScheduledMachine, now time.Time) string {
	return fmt.Sprintf("no controller has acted on %s for %s: %s", subject, duration.HumanDuration(now.Sub(waitingSince(m, now))), whichManager(m))
}

// whichManager returns the question which manager should serve m.
func whichManager(m *v1alpha1.ScheduledMachine) string {
	if shard := m.Labels[clusterv1.WatchLabel]; shard != "" {
		return fmt.Sprintf("is a manager running with --watch-filter=%s, or without a filter?", shard)
	}
	return fmt.Sprintf("is a manager running? One with --watch-filter serves only objects with the label %s", clusterv1.WatchLabel)
}

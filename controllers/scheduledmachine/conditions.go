// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// reportConditions sets all conditions of the object, and its message.
func (s *scope) reportConditions(d lifecycle.Decision, actErr error, now time.Time) {
	ready := s.ready(d, actErr, now)
	report := []metav1.Condition{ready, s.scheduledCondition(now), s.machineReady(), s.referencesValid(), s.reachable()}
	if !conditions.Has(s.scheduled, clusterv1.PausedCondition) {
		report = append(report, metav1.Condition{
			Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason,
			ObservedGeneration: s.scheduled.Generation,
		})
	}
	for _, c := range report {
		s.setCondition(c, now)
	}
	s.reportClaim(now)
	s.scheduled.Status.Message = clip.Message(ready.Message)
	if s.scheduled.Status.NodeRef == nil && !s.acceptedHost.NodeRejected() || len(s.scheduled.Spec.KillIfCommands) == 0 {
		// Package node deletes it, too. Deleting it here saves a separate write.
		conditions.Delete(s.scheduled, v1alpha1.OwnerProtectedCondition)
	}
	s.reportLentAgain(now)
}

// setCondition sets a condition, and cuts its message to the limit of the API.
func (s *scope) setCondition(c metav1.Condition, now time.Time) {
	c.Message, c.LastTransitionTime = clip.Message(c.Message), metav1.NewTime(now)
	conditions.Set(s.scheduled, c)
}

// reportLentAgain sets the condition LentAgain if a tool lent the machine again soon after a reclaim. The owner may
// still be at the machine. It is the only condition whose absence is good.
func (s *scope) reportLentAgain(now time.Time) {
	mark, marked := lending.Of(s.scheduled, now)
	if !marked {
		conditions.Delete(s.scheduled, v1alpha1.LentAgainCondition)
		return
	}
	s.setCondition(metav1.Condition{
		Type: v1alpha1.LentAgainCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.EnabledByToolReason, Message: mark.String(),
	}, now)
}

// stableMessages maps the reasons of a machine that is in its desired state to their messages.
var stableMessages = map[lifecycle.Reason]string{
	lifecycle.MachineRunning:   "Machine is healthy and running",
	lifecycle.OutsideSchedule:  "Outside the schedule: nothing runs",
	lifecycle.ScheduleDisabled: "Schedule is disabled: nothing is started, and an existing Machine stays as it is",
	lifecycle.KillSwitchOn:     "Machine stays removed until spec.killSwitch is false again",
}

// pendingMessages maps the reasons of a machine that changes state, or that is blocked, to their messages.
var pendingMessages = map[lifecycle.Reason]string{
	lifecycle.MachineNotReady:      "Machine is not ready",
	lifecycle.MachineCreating:      "Machine is being created",
	lifecycle.KillSwitchActing:     "Kill switch: Machine is being removed without drain",
	lifecycle.GracefulShutdown:     "Machine is leaving",
	lifecycle.ClusterDeleting:      "The Cluster is being deleted: nothing is started",
	lifecycle.ScheduleUnreadable:   "The schedule cannot be read: everything stays as it is",
	lifecycle.NoCluster:            "The Cluster does not exist",
	lifecycle.HostClaimed:          "Another ScheduledMachine comes first on the same host",
	lifecycle.ClockSuspect:         "The manager's clock may be wrong: it differs from the API server's by more than 1m, or was set within 5m. No machine joins. Correct the clock that is wrong",
	lifecycle.NotEvaluated:         "The schedule is being evaluated",
	lifecycle.ReferencesUnreadable: "Something cannot be read",
}

// departureCauses are the reasons of departures as text for people.
var departureCauses = map[v1alpha1.DepartureReason]string{
	v1alpha1.WindowClosed:            "its window is closed",
	v1alpha1.ScheduledMachineDeleted: "its ScheduledMachine is being deleted",
	v1alpha1.MachineReplaced:         "it cannot run any more and is replaced",
	v1alpha1.ClusterDeleted:          "its Cluster is being deleted",
	v1alpha1.KilledByPerson:          "its kill switch was turned on",
	v1alpha1.ReclaimedByOwner:        "its owner requested it",
	v1alpha1.DeletedByOthers:         "its Machine was deleted, but not by 5-Spot",
}

func (s *scope) ready(d lifecycle.Decision, actErr error, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: string(d.Reason)}
	if actuate.IsSuppressed(actErr) || s.heldElsewhere() {
		c.Reason, c.Message = v1alpha1.ActuationPausedReason, s.reportPaused(d.Reason)
		return c
	}
	if actErr != nil {
		c.Reason, c.Message = v1alpha1.ReconcileFailedReason, actErr.Error()
		if errors.Is(actErr, errUnusable) {
			c.Reason = v1alpha1.ReferencesInvalidReason
		}
		return c
	}
	if d.Reason == lifecycle.MachineCreating && s.children.Machine != nil {
		c.Reason = v1alpha1.MachineNotReadyReason // act created it in this reconcile.
	}
	reason := lifecycle.Reason(c.Reason)
	if msg, ok := stableMessages[reason]; ok {
		c.Status, c.Message = metav1.ConditionTrue, msg
	} else {
		c.Message = pendingMessages[reason]
	}
	switch reason {
	case lifecycle.EmergencyReclaim:
		record, _ := s.scheduled.ReclaimRequest()
		c.Message = withDetail(withDetail(record.Where(), s.blockingHooks()), s.stalled)
	case lifecycle.KillSwitchActing:
		c.Message = withDetail(withDetail(c.Message, s.blockingHooks()), s.leftovers())
	case lifecycle.MachineNotReady:
		c.Message = withDetail(c.Message, s.notReady())
	case lifecycle.GracefulShutdown:
		c.Message = s.leavingMessage(now)
	case lifecycle.NoCluster:
		c.Message = s.referenceProblems()
	case lifecycle.ReferencesUnreadable:
		c.Message = s.unread()
	case lifecycle.HostClaimed:
		c.Message = s.hostClaimed().Message
	case lifecycle.ScheduleDisabled:
		if record, ok := s.scheduled.ServedReclaim(); ok {
			c.Message = disabledBy(s.scheduled, record)
		}
	default:
	}
	c.Message = withDetail(c.Message, s.childNotes())
	return c
}

// notReady returns why a Machine is not ready. Cluster API sets the Ready condition before nodeRef.
func (s *scope) notReady() string {
	if c := s.machineReady(); c.Status != metav1.ConditionTrue {
		return c.Message
	}
	return "Cluster API has not reported its Node yet"
}

// leavingMessage returns since when and why a machine leaves, when its budget ends or ended, and what it waits for.
func (s *scope) leavingMessage(now time.Time) string {
	m := s.children.Machine
	switch {
	case s.children.MachineState() == lifecycle.Unknown:
		return s.referenceProblems()
	case m == nil:
		return withDetail("The Machine is gone", s.leftovers())
	}
	message := pendingMessages[lifecycle.GracefulShutdown]
	if since := children.LeavingSince(m, s.scheduled, now); !since.IsZero() {
		end, when := children.DeadlineOf(m, s.scheduled, now), "ends"
		if !now.Before(end) {
			when = "ended"
		}
		message += fmt.Sprintf(" since %s", utc(since))
		if d, ok := children.DepartureOf(m, now); ok && departureCauses[d.Reason] != "" {
			message += " because " + departureCauses[d.Reason]
		}
		message += fmt.Sprintf(", its budget %s at %s", when, utc(end))
	}
	return withDetail(message, s.leftovers())
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// leftovers returns what a departure waits for: the state of the Machine's deletion, or without a Machine the other
// children that still exist.
func (s *scope) leftovers() string {
	if m := s.children.Machine; m != nil {
		if m.DeletionTimestamp.IsZero() {
			return "" // Cluster API reports on a running Machine.
		}
		return s.machineReady().Message
	}
	var left []string
	for _, child := range s.children.Existing() {
		left = append(left, heldObject(child))
	}
	if len(left) > 0 {
		return "waiting for " + strings.Join(left, " and ") + " to be gone"
	}
	return s.unread()
}

func withDetail(message, detail string) string {
	if detail == "" {
		return message
	}
	return message + ": " + detail
}

// blockingHooks names the deletion hooks of others that a removal waits for, and how to proceed; empty if there are
// none.
func (s *scope) blockingHooks() string {
	if len(s.waitsFor) == 0 {
		return ""
	}
	return fmt.Sprintf("the infrastructure waits for other deletion hooks on Machine %s: %s; finish or remove them",
		s.children.Machine.Name, strings.Join(s.waitsFor, ", "))
}

func (s *scope) scheduledCondition(now time.Time) metav1.Condition {
	schedule := machineschedule.Resolve(s.scheduled, now)
	c := schedule.Condition()
	if record, reclaimed := s.scheduled.ServedReclaim(); reclaimed && !schedule.Enabled {
		c.Reason, c.Message = v1alpha1.EmergencyReclaimDisabledScheduleReason, disabledBy(s.scheduled, record)
	}
	return c
}

func disabledBy(sm *v1alpha1.ScheduledMachine, r v1alpha1.ReclaimRecord) string {
	if sm.AwaitsResume() {
		return fmt.Sprintf("Kept away since its emergency reclaim (%s), also while spec.schedule.enabled is true. Lend it again with kubectl 5spot resume when ready.", r.Why())
	}
	return fmt.Sprintf("Schedule auto-disabled by emergency reclaim (%s). Re-enable with kubectl patch when ready.", r.Why())
}

// machineReady mirrors the state of the Machine, and adds why ingest rejected a part of what it reports.
func (s *scope) machineReady() metav1.Condition {
	c := s.mirrored()
	for _, r := range s.acceptedHost.Rejected {
		c.Message = strings.TrimPrefix(c.Message+". Rejected: "+r.Message, ". ")
	}
	return c
}

// mirrored mirrors the Ready condition of the Machine, and during its deletion the Deleting condition, which names pods
// that block a drain. While Cluster API waits for a hook of 5-Spot, it uses 5-Spot's condition ReadyForDeletion, which
// has more detail.
func (s *scope) mirrored() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.MachineReadyCondition, Status: metav1.ConditionFalse}
	m := s.children.Machine
	if m == nil {
		c.Reason, c.Message = v1alpha1.MachineAbsentReason, "There is no Machine"
		return c
	}
	if left := s.lingering(); left != "" {
		c.Reason, c.Message = clusterv1.MachineDeletingReason, left
		return c
	}
	source, deleting := conditions.Get(m, clusterv1.ReadyCondition), conditions.Get(m, clusterv1.MachineDeletingCondition)
	if deleting != nil && deleting.Status != metav1.ConditionTrue {
		deleting = nil
	}
	if ours := conditions.Get(m, v1alpha1.ReadyForDeletionCondition); !m.DeletionTimestamp.IsZero() && ours != nil && ours.Status == metav1.ConditionFalse && atHook(deleting) {
		c.Reason, c.Message = ours.Reason, ours.Message
		return c
	}
	switch {
	case deleting != nil:
		c.Reason, c.Message = deleting.Reason, withDetail(deleting.Message, s.holders(deleting.Reason))
	case !m.DeletionTimestamp.IsZero():
		c.Reason, c.Message = clusterv1.MachineDeletingReason, "Cluster API has not reported on the deletion yet"
	case source == nil:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.MachineNotReadyReason
		c.Message = "Cluster API has not reported on the Machine yet"
	case source.Status == metav1.ConditionTrue:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.MachineReadyReason, "CAPI Machine is in Running state"
	default:
		c.Status, c.Reason, c.Message = source.Status, source.Reason, source.Message
	}
	return c
}

// atHook reports whether Cluster API waits for a deletion hook, or has not reported on the deletion yet.
func atHook(deleting *metav1.Condition) bool {
	return deleting == nil || deleting.Reason == clusterv1.MachineDeletingWaitingForPreDrainHookReason || deleting.Reason == clusterv1.MachineDeletingWaitingForPreTerminateHookReason
}

func (s *scope) referencesValid() metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ReferencesValidCondition, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReferencesValidReason, Message: s.childNotes(),
	}
	if msg := s.unread(); msg != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReferencesUnreadableReason, msg
	}
	if msg := s.referenceProblems(); msg != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReferencesInvalidReason, msg
	}
	return c
}

// unread names the objects that could not be read, empty if there are none.
func (s *scope) unread() string {
	var parts []string
	for _, p := range s.children.Unread {
		parts = append(parts, "spec."+p.Field+": "+p.Message)
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + ". Until then nothing is created or removed because of it"
}

// referenceProblems names invalid parts of the spec and how to correct them; empty if all are valid.
func (s *scope) referenceProblems() string {
	var problems []string
	for _, e := range s.invalid {
		if !strings.HasPrefix(e.Field, "spec.schedule.") { // The condition Scheduled has these.
			problems = append(problems, e.Error())
		}
	}
	if s.cluster == nil {
		problems = append(problems, fmt.Sprintf("spec.clusterName: Cluster %s does not exist in namespace %s: create it, or create a ScheduledMachine for another",
			s.scheduled.Spec.ClusterName, s.scheduled.Namespace))
	}
	for _, p := range s.children.Problems {
		problems = append(problems, "spec."+p.Field+": "+p.Message)
	}
	return strings.Join(problems, "; ")
}

// childNotes returns notes on existing children for the author of the spec: which edits apply at the next window, and
// which fields the provider's API did not store. An API server prunes unknown fields without an error.
func (s *scope) childNotes() string {
	var edited, dropped, notes []string
	for _, c := range s.drafts() {
		if c.live == nil {
			continue
		}
		if s.children.Machine != nil && !c.MadeFrom(c.live) {
			edited = append(edited, "spec."+c.Field)
		}
		dropped = append(dropped, c.Dropped(c.live)...)
	}
	if len(edited) > 0 {
		notes = append(notes, "edits of "+strings.Join(edited, " and ")+" apply at the next window")
	}
	if len(dropped) > 0 {
		notes = append(notes, "the provider's API did not store "+strings.Join(dropped, ", ")+": check the spelling")
	}
	return strings.Join(notes, "; ")
}

// reachable reports whether 5-Spot can read the Nodes of the workload cluster.
func (s *scope) reachable() metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.WorkloadClusterReachableCondition, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ConnectedReason, Message: "The Nodes of the workload cluster are watched",
	}
	last := conditions.Get(s.scheduled, c.Type)
	switch {
	case s.cluster != nil && !workload.MatchesFilter(s.filter, s.cluster):
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.WatchFilterMismatchReason
		c.Message = fmt.Sprintf("Cluster %s lacks the label %s=%s: owners' requests are not seen; label the Cluster", s.cluster.Name, clusterv1.WatchLabel, s.filter)
	case s.cluster != nil && !s.connected && s.probes.LastProbeTime.IsZero() && last != nil && last.Reason != v1alpha1.WatchFilterMismatchReason:
		// After a start, the manager has not tried to connect yet. The last condition stays; otherwise each restart
		// would write each status twice.
		return *last
	case !s.connected, s.probes.ConsecutiveFailures >= failedProbes:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.NotConnectedReason
		c.Message = "The workload cluster is not connected: owners' requests are not seen"
		if at := s.probes.LastProbeSuccessTime; !at.IsZero() {
			c.Message = fmt.Sprintf("The workload cluster has not answered since %s: owners' requests are not seen. Check its API server, the network and its kubeconfig Secret; the manager's log has the error", utc(at))
		}
	}
	return c
}

// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// maxQuoted bounds a reason inside an Event note, in bytes. The note must still have room for how to lend the machine
// again.
const maxQuoted = 512

// nodeTimeout bounds one write to a Node. A failed write is retried after a back-off.
const nodeTimeout = 2 * time.Second

// act carries out one step. RecordRequest continues with the ejection in the same reconcile.
func (r *Reconciler) act(ctx context.Context, s *scope, step lifecycle.Step) error {
	if err := r.permit(ctx, s, step); err != nil {
		return err
	}
	switch step {
	case lifecycle.NoStep, lifecycle.WaitForRemoval, lifecycle.Refuse:
		return nil
	case lifecycle.RecordRequest:
		first, rapid, err := r.recordRequest(ctx, s)
		if err != nil || !s.scheduled.BeingReclaimed() {
			return err
		}
		err = r.eject(ctx, s)
		if first {
			r.announce(ctx, s, rapid)
		}
		return err
	case lifecycle.RestoreRequest:
		return kinds.IgnoreNoObject(r.restoreRequest(ctx, s))
	case lifecycle.DropRequest:
		return kinds.IgnoreNoObject(r.dropRequest(ctx, s))
	case lifecycle.Eject:
		err := r.eject(ctx, s)
		if err != nil && s.ejected {
			// The patch of the Machine, which is retried until it succeeds, does not delay the Node.
			s.unseen = r.readNode(ctx, s)
			_ = r.act(ctx, s, lifecycle.NodeStep(r.facts(s)))
		}
		return err
	case lifecycle.DisableSchedule:
		return r.disableSchedule(ctx, s)
	case lifecycle.Evict:
		return r.writeNode(ctx, s, step, func(ctx context.Context, a actuate.Action) error { return a.Evict(ctx, s.node) })
	case lifecycle.DeleteNode:
		return r.writeNode(ctx, s, step, s.deleteNode)
	case lifecycle.Clear:
		return r.writeNode(ctx, s, step, s.clear)
	default:
		return fmt.Errorf("unknown step %q", step)
	}
}

// recordRequest records the Node's request on the ScheduledMachine. There it survives a crash, the deletion of the
// Node, and clusterctl move.
func (r *Reconciler) recordRequest(ctx context.Context, s *scope) (first, rapid bool, err error) {
	record := recordOf(s.node)
	first, rapid, err = r.record(ctx, s, record, func() bool {
		return !s.scheduled.BeingReclaimed() && s.classifyRequest(s.node) == lifecycle.FreshRequest
	})
	if err != nil || !first {
		return first, rapid, err
	}
	since := requestedAt(s.node)
	if at, err := time.Parse(time.RFC3339, record.RequestedAt); err == nil {
		since = at // The same clock, the Node's, dates the later stages.
	}
	s.observeStage(stageSeen, since, s.at)
	ctrl.LoggerFrom(ctx).Info("Reclaiming machine for its owner", "Node", record.Node, "reason", record.Why())
	return first, rapid, nil
}

// recordGiveBack counts and reports a request that a person wrote to the ScheduledMachine. It waits until the Machine
// is deleted, so that this write does not delay the owner.
func (r *Reconciler) recordGiveBack(ctx context.Context, s *scope) error {
	if !s.uncounted() || s.children.Machine != nil && !s.deleted() && !s.ejected {
		return nil
	}
	first, rapid, err := r.record(ctx, s, s.request(), s.uncounted)
	if err != nil || !first {
		return err
	}
	s.observeStage(stageSeen, s.since(), s.at)
	r.announce(ctx, s, rapid)
	return nil
}

// record writes a request and the time of it to the ScheduledMachine in one locked patch. first is false if another
// patch already recorded the request, and rapid reports too many requests. After an error, record reads the
// ScheduledMachine from the API server. A conflict may come from a stale cache, and a lost response from a patch that
// was applied. open reports whether the request still has to be recorded.
func (r *Reconciler) record(ctx context.Context, s *scope, request v1alpha1.ReclaimRecord, open func() bool) (first, rapid bool, err error) {
	request = request.Seen(s.at)
	write := func() error {
		sm := s.scheduled.DeepCopy()
		metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, request.String())
		var times []time.Time
		times, rapid = lifecycle.Reclaimed(sm.ReclaimTimes(), s.at)
		sm.SetReclaimTimes(times)
		if err := r.Actuate.PatchLocked(ctx, sm, s.scheduled); err != nil {
			return err // The scope has the request only if the API server accepts it.
		}
		s.scheduled = sm
		return nil
	}
	if err = write(); err == nil || actuate.IsSuppressed(err) {
		return err == nil, rapid, err
	}
	live := &v1alpha1.ScheduledMachine{}
	switch unread := r.Children.Live.Get(ctx, client.ObjectKeyFromObject(s.scheduled), live); {
	case apierrors.IsNotFound(unread):
		return false, false, nil
	case unread != nil:
		return false, false, fmt.Errorf("recording request: %w", err)
	case live.UID != s.scheduled.UID:
		return false, false, nil // The creation of the new object triggers a reconcile.
	}
	s.scheduled = live
	switch {
	case !apierrors.IsConflict(err) && s.request() == request:
		return true, rapid, nil
	case !open():
		return false, false, nil
	case apierrors.IsConflict(err):
		err = write()
	}
	if err != nil {
		return false, false, fmt.Errorf("recording request: %w", err)
	}
	return true, rapid, nil
}

// restoreRequest restores the request from the Machine's departure record, if a tool removed it from the
// ScheduledMachine. Without it the machine would be lent again as soon as it is gone. It reads the Machine live,
// because a stale cache may show an old record.
func (r *Reconciler) restoreRequest(ctx context.Context, s *scope) error {
	m, err := r.Children.Uncached().Machine(ctx, s.scheduled)
	if err != nil || m == nil || !children.ForOwner(m, r.Clock.Now()) {
		return err
	}
	departure, _ := children.DepartureOf(m, r.Clock.Now())
	record := v1alpha1.RecalledRequest(m.Status.NodeRef.Name, departure.Since.Time).Seen(s.at)
	before := s.scheduled.DeepCopy()
	metav1.SetMetaDataAnnotation(&s.scheduled.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, record.String())
	if err := r.Actuate.PatchLocked(ctx, s.scheduled, before); err != nil {
		return fmt.Errorf("restoring request: %w", err)
	}
	r.Recorder.Eventf(s.scheduled, nil, corev1.EventTypeWarning, v1alpha1.EmergencyReclaimEvent, "EmergencyReclaim", "%s", record.Requested())
	return nil
}

// dropRequest removes a request that 5-Spot does not serve.
func (r *Reconciler) dropRequest(ctx context.Context, s *scope) error {
	before := s.scheduled.DeepCopy()
	delete(s.scheduled.Annotations, v1alpha1.EmergencyReclaimAnnotation)
	if err := r.Actuate.PatchLocked(ctx, s.scheduled, before); err != nil {
		return fmt.Errorf("removing request: %w", err)
	}
	return nil
}

// eject deletes the Machine before it reads or deletes objects of a provider. A provider's API may fail, and a broken
// reference must not block the owner.
func (r *Reconciler) eject(ctx context.Context, s *scope) error {
	var refused error
	if m := s.children.Machine; m != nil {
		deleted := s.deleted()
		gone, err := r.ejection(s).Remove(ctx, &children.Set{Machine: m}, r.Hooks)
		if s.refused = err != nil; s.refused {
			refused = fmt.Errorf("ejecting machine: %w", err)
		}
		if !gone {
			return refused
		}
		s.ejected = true
		if !deleted {
			now := r.Clock.Now()
			s.observeStage(stageDeleted, s.since(), now)
			if s.scheduled.BeingReclaimed() {
				r.deletions.Store(client.ObjectKeyFromObject(s.scheduled), now)
			}
		}
	}
	if !s.providerRead {
		r.readProviderObjects(ctx, s)
	}
	return errors.Join(refused, r.ejectRemaining(ctx, s))
}

// ejectRemaining deletes the remaining provider objects of the machine.
func (r *Reconciler) ejectRemaining(ctx context.Context, s *scope) error {
	if s.children.NextToDelete(r.Hooks) == nil {
		return nil
	}
	return r.atProvider(ctx, callKey{"deleting", s.provider()}, actuate.WriteTimeout, func(ctx context.Context) error {
		return r.ejection(s).DeleteNext(ctx, &s.children, r.Hooks)
	})
}

// disableSchedule disables the schedule and removes the request in one write. A crash between two writes would eject the
// machine again, or lend it. A record of the served reclaim stays for people. The write carries the resourceVersion: with
// a stale cache it fails with a conflict, so that Event and metrics are recorded at most once. See ADR 0003.
func (r *Reconciler) disableSchedule(ctx context.Context, s *scope) error {
	if err := r.recordGiveBack(ctx, s); err != nil || !s.scheduled.BeingReclaimed() {
		return err
	}
	sm, record, since := s.scheduled, s.request(), s.since()
	before := sm.DeepCopy()
	sm.Spec.Schedule.Enabled = new(false)
	delete(sm.Annotations, v1alpha1.EmergencyReclaimAnnotation)
	record = record.Served(r.Clock.Now())
	sm.SetServedReclaim(record)
	at, _ := r.deletions.Load(client.ObjectKeyFromObject(sm))
	deleted, _ := at.(time.Time) // zero if this process did not see it
	sm.AddGiveBack(v1alpha1.GiveBack{ReclaimRecord: record}.Deleted(deleted, sm.Status.ReclaimHold))
	err := r.Actuate.PatchLocked(ctx, sm, before)
	refused := apierrors.IsConflict(err) || actuate.IsSuppressed(err)
	if kinds.IgnoreNoObject(err) != nil && (refused || !r.isServed(ctx, sm, record)) {
		return fmt.Errorf("turning schedule off: %w", err)
	}
	s.observeStage(stageGone, since, r.Clock.Now())
	r.deletions.Delete(client.ObjectKeyFromObject(sm))
	if kinds.NoObject(err) {
		return nil // The object was deleted, and package scheduledmachine has released it.
	}
	ctrl.LoggerFrom(ctx).Info("Gave machine back and turned its schedule off", "Node", record.Node, "reason", record.Why())
	r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.EmergencyReclaimDisabledScheduleEvent, "EmergencyReclaimDisableSchedule",
		"Schedule turned off by emergency reclaim (%s), so that the machine does not come back while its owner uses it. "+
			"To lend it again: kubectl 5spot -n %s resume %s%s",
		clip.To(record.Why(), maxQuoted), sm.Namespace, sm.Name, otherWay(sm))
	return nil
}

// isServed reports whether the API server has the record of the served reclaim: the answer to a patch can be lost.
func (r *Reconciler) isServed(ctx context.Context, sm *v1alpha1.ScheduledMachine, record v1alpha1.ReclaimRecord) bool {
	live := &v1alpha1.ScheduledMachine{}
	err := r.Children.Live.Get(ctx, client.ObjectKeyFromObject(sm), live)
	served, ok := live.ServedReclaim()
	return err == nil && live.UID == sm.UID && ok && served == record
}

// otherWay returns whether setting spec.schedule.enabled lends the machine again, as text for an Event.
func otherWay(sm *v1alpha1.ScheduledMachine) string {
	if sm.AwaitsResume() {
		return ". With spec.resumeAfterReclaim: OnResume, setting spec.schedule.enabled is not enough"
	}
	return ", or set spec.schedule.enabled to true"
}

// writeNode writes to the Node in the workload cluster. A missing Node or a missing connection is no error: by then the
// Machine is being deleted, and the other steps must not wait.
func (r *Reconciler) writeNode(ctx context.Context, s *scope, step lifecycle.Step, write func(context.Context, actuate.Action) error) error {
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, workload.ClusterKey(s.scheduled))
	if err != nil {
		return workload.IgnoreNotConnected(err)
	}
	done, err := r.calls.begin(callKey{"nodes", workload.ClusterKey(s.scheduled).String()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	i := r.intent(s)
	i.Kind, i.Why = audit.NodePatch, string(step)
	if err = write(ctx, remote.For(i)); actuate.Gone(err) {
		err = nil
	}
	done(actuate.IgnoreSuppressed(err))
	return err
}

// deleteNode deletes the Node. If the API server rejects the deletion, deleteNode clears the served request. Otherwise
// the agent could not make a new one on the same Node.
func (s *scope) deleteNode(ctx context.Context, remote actuate.Action) error {
	err := remote.Delete(ctx, s.node)
	if !isRefusal(err) || s.classifyRequest(s.node) != lifecycle.ServedRequest {
		return err
	}
	return errors.Join(err, s.clear(ctx, remote))
}

// isRefusal reports whether the API server rejects a request permanently.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code/100 == 4 && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err)
}

// clear removes a served or stale request from its Node. If the program still runs, the agent requests again. The lock
// prevents the removal of a newer request. The eviction taint of a Node stays until a machine is lent on it again.
func (s *scope) clear(ctx context.Context, remote actuate.Action) error {
	before := s.node.DeepCopy()
	for _, annotation := range []string{
		reclaimapi.RequestedAnnotation, reclaimapi.ReasonAnnotation, reclaimapi.RequestedAtAnnotation, reclaimapi.HoldAnnotation,
	} {
		delete(s.node.Annotations, annotation)
	}
	if s.children.MachineState() == lifecycle.Present {
		s.node.Spec.Taints = slices.DeleteFunc(s.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == reclaimapi.NodeTaint })
	}
	if err := remote.PatchLocked(ctx, s.node, before); err != nil {
		return fmt.Errorf("clearing request: %w", err)
	}
	return nil
}

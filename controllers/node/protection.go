// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

const (
	// maxID bounds the length of a shown machine ID.
	maxID = 64
	// maxNote is the limit of an Event's note in the events API, in bytes.
	maxNote = 1024
)

// protection reports whether the agent watches for the owner's programs. It uses the Node's report for this condition
// only.
func (r *Reconciler) protection(ctx context.Context, s *scope) error {
	if !usesAgent(s.scheduled) {
		r.differing.Over(s.request)
		return nil
	}
	v := Decide(s.protectionFacts(r.Installs))
	last := conditions.Get(s.scheduled, v1alpha1.OwnerProtectedCondition)
	if !v.IsReported(last) {
		if at := r.differing.Until(s.request, v.ReportDelay(last), s.now); at.After(s.now) {
			s.recheckAt(at)
			return nil
		}
		if err := r.reportProtection(ctx, s, v); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	r.differing.Over(s.request)
	return nil
}

// usesAgent reports whether a ScheduledMachine needs the agent, or has the condition OwnerProtected.
func usesAgent(sm *v1alpha1.ScheduledMachine) bool {
	return !sm.Spec.AgentConfig().Inert() || conditions.Has(sm, v1alpha1.OwnerProtectedCondition)
}

// protectionFacts converts the observed objects to the facts of the decision. installs reports that 5-Spot installs the
// agent.
func (s *scope) protectionFacts(installs bool) Facts {
	unreadable := s.unreadable() != nil
	f := Facts{
		Leaving: s.leaving() || s.nodeLeaving(), Disconnected: s.disconnected, Unreadable: unreadable,
		Tried: !installs, Elsewhere: !installs, Failure: s.failure, Staged: s.staged, RejectedNode: s.host.NodeRejection(),
	}
	if c := s.agentConfig(); !c.Inert() {
		f.Wanted = c.Hash()
	}
	if c := s.installation(); c != nil && installs {
		f.Tried = true
		if c.Status == metav1.ConditionFalse {
			f.Failure = c.Message
		}
	}
	if s.node != nil || s.disconnected || unreadable {
		f.Node = s.host.Node
	}
	if s.node != nil {
		f.AgentState = s.node.Annotations[reclaimapi.StateAnnotation]
		f.Hold, f.HoldUnavailable = string(s.scheduled.Spec.ReclaimHold), s.holdUnavailable()
		f.Changed, f.Refused = s.hostMismatch(), s.refused()
	}
	if s.pod != nil {
		f.Pod, f.Running, f.Ready, f.NotReadyReason = true, running(s.pod), workload.Ready(s.pod), notReadyReason(s.pod)
		if s.node != nil && !util.IsNodeReady(s.node) {
			f.NotReadyReason = "the Node is not Ready either" // The pod's own state is outdated.
		}
	}
	return f
}

// holdUnavailable returns why spec.reclaimHold has no effect, empty if it has.
func (s *scope) holdUnavailable() string {
	state, ok := reclaimapi.ParseHoldState(s.node.Annotations[reclaimapi.HoldAnnotation])
	switch {
	case !s.scheduled.Spec.ReclaimHold.Enabled():
		return ""
	case s.refuses():
		return "an owner's request never removes a machine of a control plane" // A changed host is another verdict.
	case !ok:
		return ""
	default:
		return clip.Line(state.Unavailable)
	}
}

// nodeLeaving reports whether the Node is being deleted, or has a request of the owner that is served. The agent is
// then removed, or has nothing more to report.
func (s *scope) nodeLeaving() bool {
	return s.node != nil && (!s.node.DeletionTimestamp.IsZero() || reclaimapi.Requested(s.node.Annotations) && s.hostMismatch() == "" && !s.refuses())
}

// hostMismatch returns why requests from the Node are refused, empty if they are served. Either the Node is of another
// host, or the agent exited with code 3 and is not running. A restarted container still has the exit code of an earlier
// run in its status.
func (s *scope) hostMismatch() string {
	if why := s.otherHost(); why != "" {
		return why
	}
	if s.pod != nil && !running(s.pod) && exitOf(s.pod) == exitIdentity {
		return fmt.Sprintf("Node %s has another machine ID than its host, and the agent refused a request of the owner", s.node.Name)
	}
	return ""
}

// otherHost returns how the Node differs from the host of the Machine, empty if it does not: by its machine ID or its
// provider ID. Cluster API's copy of the machine ID does not count.
func (s *scope) otherHost() string {
	host := s.host
	host.MachineID = children.Known(s.scheduled, s.machine).MachineID
	if s.machine == nil || host.Is(s.node) {
		return ""
	}
	if id := s.node.Status.NodeInfo.MachineID; id != "" && host.MachineID != "" && id != host.MachineID {
		return fmt.Sprintf("Node %s has the machine ID %q, and had %q first", s.node.Name, clip.To(clip.Line(id), maxID), host.MachineID)
	}
	return fmt.Sprintf("Node %s has the provider ID %q, and its Machine %q", s.node.Name,
		clip.To(clip.Line(s.node.Spec.ProviderID), maxID), clip.To(clip.Line(cmp.Or(host.Reported.ProviderID, host.ProviderID)), maxID))
}

// refused returns the request on the Node as text, empty if there is none.
func (s *scope) refused() string {
	a := s.node.Annotations
	if !reclaimapi.Requested(a) {
		return ""
	}
	return v1alpha1.ReclaimRecord{Reason: a[reclaimapi.ReasonAnnotation], RequestedAt: a[reclaimapi.RequestedAtAnnotation]}.Screened().Requested()
}

// reportProtection writes the condition. It then records an Event if protection is lost or missing, or restored. It
// records none for a machine that is protected from the start.
func (r *Reconciler) reportProtection(ctx context.Context, s *scope, v Verdict) error {
	sm := s.scheduled
	before := sm.DeepCopy()
	last := conditions.Get(before, v1alpha1.OwnerProtectedCondition)
	if v.Drop {
		conditions.Delete(sm, v1alpha1.OwnerProtectedCondition)
	} else {
		conditions.Set(sm, metav1.Condition{
			Type: v1alpha1.OwnerProtectedCondition, Status: v.Status, Reason: v.Reason, Message: clip.Message(v.Message),
			LastTransitionTime: metav1.NewTime(s.now),
		})
	}
	if err := r.Actuate.PatchStatus(ctx, sm, before); err != nil {
		return err
	}
	lost := last != nil && last.Status == metav1.ConditionFalse
	switch {
	case v.Status == metav1.ConditionFalse && !lost:
		r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.OwnerUnprotectedEvent, "LookAtReclaimAgent",
			"%s", clip.To("The agent does not look for the owner's programs: "+v.Message, maxNote))
	case v.Status == metav1.ConditionTrue && lost:
		r.Recorder.Eventf(sm, nil, corev1.EventTypeNormal, v1alpha1.OwnerProtectedEvent, "LookAtReclaimAgent",
			"%s", clip.To("The agent looks for the owner's programs again: "+v.Message, maxNote))
	}
	return nil
}

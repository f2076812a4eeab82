// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

const (
	// maxMessage is the API's limit of a message in characters. The code counts bytes.
	maxMessage = 1024
	// unknownState is balancer.Unknown in the API.
	unknownState = "Unknown"
)

// phase returns the progress of a Node at the load balancer. It is empty if there is nothing to report.
func (s *nodeBalancer) phase(o *round) expv1.AttachmentPhase {
	switch {
	case !s.out && !s.needsRestore():
		return ""
	case s.out && errors.Is(cmp.Or(o.failed, s.failed), balancer.ErrThrottled): // The next round queries it again.
		return expv1.PhasePending
	case o.failed != nil, s.failed != nil:
		return expv1.PhaseUnknown
	case !s.out:
		return expv1.PhaseAttaching
	case s.attachment.Spec.Trigger == string(plan.Gone):
		return expv1.PhaseDetached
	case !s.discovered:
		return expv1.PhasePending
	}
	phase := expv1.PhaseDetached
	for i, m := range s.members {
		switch {
		case s.steps[i].Held != "":
			return expv1.PhaseHeld
		case m.Status.State == balancer.Unknown:
			phase = expv1.PhaseUnknown
		case phase == expv1.PhaseDetached && (m.Status.State == balancer.Attached || m.Status.State == balancer.Draining || busy(m) || o.lingers(m)):
			phase = expv1.PhaseDraining
		}
	}
	return phase
}

// busy reports whether a membership that another party disabled still has connections.
func busy(m plan.Member) bool {
	return m.Status.State == balancer.Disabled && m.Status.Connections != nil && *m.Status.Connections > 0
}

// lingers reports whether connections may continue that the load balancer does not count.
func (o *round) lingers(m plan.Member) bool {
	return m.Status.State == balancer.Drained && m.TakenAt.Add(o.wait).After(o.now)
}

// needsRestore reports whether a drained membership must still be restored.
func (s *nodeBalancer) needsRestore() bool {
	for i, m := range s.members {
		if m.Taken && !s.steps[i].Act.EndsRecord() {
			return true
		}
	}
	return false
}

// disabled reports whether memberships must be restored, and another party has disabled all of them.
func (s *nodeBalancer) disabled() bool {
	return !s.out && s.needsRestore() && !slices.ContainsFunc(s.members, func(m plan.Member) bool { return m.Status.State != balancer.Disabled })
}

// report writes the progress of a Node at one load balancer, and the summary condition, into the status of its
// NodeAttachment. It does not patch.
func (s *nodeBalancer) report(o *round) {
	a := s.attachment
	name := o.lb.Name
	var known []expv1.MembershipStatus
	if p := progressOf(a, name); p != nil && p.Phase != expv1.PhaseAttaching && cmp.Or(o.failed, s.failed) != nil {
		known = p.Members
	}
	a.Status.LoadBalancers = slices.DeleteFunc(a.Status.LoadBalancers, func(p expv1.BalancerProgress) bool { return p.Name == name })
	if phase := s.phase(o); phase != "" {
		p := expv1.BalancerProgress{Name: name, Phase: phase, Members: s.states(name, known)}
		if s.discovered {
			p.Generation, p.DiscoveryHash = o.lb.Generation, discoveryHash(a)
		}
		p.Message = clip.To(clip.Text(s.message(phase, o)), maxMessage)
		a.Status.LoadBalancers = append(a.Status.LoadBalancers, p)
		slices.SortFunc(a.Status.LoadBalancers, func(a, b expv1.BalancerProgress) int { return strings.Compare(a.Name, b.Name) })
	}
	conditions.Set(a, summary(a, o.balancers))
}

// states returns the memberships of a Node and their states. A state that could not be read is the one in known, so that
// connections that were reported still count.
func (s *nodeBalancer) states(lb string, known []expv1.MembershipStatus) (states []expv1.MembershipStatus) {
	for i, m := range s.members {
		if s.steps[i].Act.EndsRecord() {
			continue
		}
		state := expv1.MembershipStatus{
			Membership:  recordOf(lb, m.Membership),
			State:       string(cmp.Or(m.Status.State, unknownState)),
			Connections: m.Status.Connections,
			Message:     s.steps[i].Held,
		}
		if k := slices.IndexFunc(known, func(k expv1.MembershipStatus) bool { return k.Same(state.Membership) }); k >= 0 &&
			(state.State == unknownState || m.Status.Partial && m.Status.State == balancer.Drained && known[k].State == string(balancer.Draining)) {
			state.State, state.Connections = known[k].State, known[k].Connections
		}
		states = append(states, state)
	}
	return states
}

// message returns the error, or what the Node waits for at each member.
func (s *nodeBalancer) message(phase expv1.AttachmentPhase, o *round) string {
	if err := cmp.Or(o.failed, s.failed); err != nil {
		return err.Error()
	}
	if phase == expv1.PhaseDetached {
		return s.notFoundNote()
	}
	var waits []string
	for i, m := range s.members {
		if text := o.waitsFor(m, s.steps[i]); text != "" {
			waits = append(waits, text)
		}
	}
	return strings.Join(waits, ", ")
}

// notFoundNote returns a message if discovery found no membership of the Node. A configuration error may be the cause.
func (s *nodeBalancer) notFoundNote() string {
	if !s.out || !s.discovered || len(s.members) > 0 || s.attachment.Spec.Trigger == string(plan.Gone) {
		return ""
	}
	ids := slices.DeleteFunc(append([]string{s.attachment.Spec.ProviderID}, s.attachment.Spec.Addresses...), func(id string) bool { return id == "" })
	return "no member is " + strings.Join(ids, " or ")
}

func (o *round) waitsFor(m plan.Member, step plan.MemberAction) string {
	name := nameOf(m.Membership)
	switch {
	case step.Held != "":
		return name + " stays: " + step.Held
	case m.Status.State == balancer.Draining && m.Status.Connections != nil, m.Out && busy(m):
		return fmt.Sprintf("%s has %d connections", name, *m.Status.Connections)
	case m.Status.State == balancer.Draining:
		return name + " is draining"
	case m.Status.State == balancer.Disabled && !m.Out:
		return name + " was disabled by another client"
	case m.Out && o.lingers(m):
		return fmt.Sprintf("%s may have connections until %s", name, m.TakenAt.Add(o.wait).UTC().Format(time.RFC3339))
	case m.Status.State == balancer.Unknown:
		return name + " is not known"
	case step.Act == plan.Restore:
		return name + " is being restored"
	case step.Act == plan.Drain:
		return name + " is being drained"
	default:
		return ""
	}
}

// recordOf converts a Driver's membership to the API type.
func recordOf(lb string, m balancer.Membership) expv1.Membership {
	return expv1.Membership{LoadBalancer: lb, Pool: m.Pool, Member: m.Member, Port: m.Port, Address: m.Address, Persistent: m.Persistent}
}

func nameOf(m balancer.Membership) string {
	name := m.Member
	if m.Pool != "" {
		name = m.Pool + "/" + m.Member
	}
	if m.Port != 0 {
		name += fmt.Sprintf(":%d", m.Port)
	}
	return name
}

// summary returns the condition NodeBeingDetached. Its reason comes from the first load balancer that is not done. One
// of the Cluster's load balancers that has not reported yet is not done.
func summary(a *expv1.NodeAttachment, balancers []expv1.LoadBalancer) metav1.Condition {
	c := metav1.Condition{Type: expv1.NodeBeingDetachedCondition, Status: metav1.ConditionFalse, Reason: expv1.AttachingReason}
	if a.Spec.Trigger != "" {
		c.Status, c.Reason = metav1.ConditionTrue, expv1.DetachedReason
	}
	reasons := map[expv1.AttachmentPhase]string{
		expv1.PhaseHeld: expv1.InsufficientMembersReason, expv1.PhaseUnknown: expv1.MembershipUnknownReason,
		expv1.PhasePending: expv1.DetachingReason, expv1.PhaseDraining: expv1.DetachingReason,
	}
	var notes []string
	for _, p := range a.Status.LoadBalancers {
		if p.Message != "" {
			notes = append(notes, p.Name+": "+p.Message)
		}
		if c.Reason == expv1.DetachedReason {
			c.Reason = cmp.Or(reasons[p.Phase], c.Reason)
		}
	}
	for i := range balancers {
		unreported := mustDetachFrom(a, &balancers[i]) && progressIfDetaching(a, &balancers[i]) == nil
		if c.Reason == expv1.DetachedReason && unreported && a.Spec.Trigger != string(plan.Gone) { // A Node that is gone is not discovered again.
			c.Reason = expv1.DetachingReason
		}
	}
	c.Message = clip.Message(strings.Join(notes, "; "))
	return c
}

// recordEvents records an Event when a load balancer stops to answer, and when it answers again.
func (r *BalancerReconciler) recordEvents(o *round, was *metav1.Condition, is metav1.Condition) {
	switch {
	case is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status):
		r.Recorder.Eventf(o.lb, nil, corev1.EventTypeWarning, expv1.CallFailedReason, "Detach", "%s", is.Message)
	case is.Status == metav1.ConditionTrue && was != nil && was.Status == metav1.ConditionFalse:
		r.Recorder.Eventf(o.lb, nil, corev1.EventTypeNormal, expv1.CallSucceededReason, "Detach", "it answers again")
	}
}

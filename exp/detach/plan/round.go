// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// Member is the membership of a Node in one pool, as observed at one load balancer.
type Member struct {
	// Node identifies the Node in the order of members. It is the name of its NodeAttachment.
	Node string
	// Membership identifies the membership. Status is what the load balancer reports about it.
	Membership balancer.Membership
	Status     balancer.Status
	// Taken means that the record lists the membership as drained, or about to be drained.
	Taken bool
	// TakenAt is when it was recorded. It is zero if it is not on record.
	TakenAt time.Time
	// Out means that the Node must be detached, and Since is the time of that decision. Urgent means that minMembers
	// does not hold it.
	Out    bool
	Since  time.Time
	Urgent bool
	// Gone means that the Node does not exist. Volatile means that the load balancer loses drains when it restarts.
	Gone, Volatile bool
	// Closing means that the membership is not checked any more once it is restored.
	Closing bool
	// Successor is another LoadBalancer of the same pool that keeps the Node detached. It is empty if there is none.
	// Found means that the successor has discovered the membership.
	Successor string
	Found     bool
}

// Act is the action on a Member. The zero value means none.
type Act string

const (
	// Drain stops new connections. The record is written first.
	Drain Act = "Drain"
	// Restore undoes the drain.
	Restore Act = "Restore"
	// Release removes the membership from the record: it is restored, or 5-Spot must not restore it.
	Release Act = "Release"
	// HandOver moves the membership to the record of its successor. It stays drained.
	HandOver Act = "HandOver"
)

// EndsRecord reports whether the action removes the membership from the record of this load balancer.
func (a Act) EndsRecord() bool { return a == Release || a == HandOver }

// MemberAction is the action on a Member, or the reason to wait.
type MemberAction struct {
	Act Act
	// Held is why the Member is not drained although its Node must be detached.
	Held string
}

// Round returns the step of each Member of one load balancer. A pool keeps at least floor members that get new
// connections. Urgent members are drained regardless of floor, but reduce the number that remains. Members whose detach
// was requested first go first.
func Round(members []Member, floor int) []MemberAction {
	steps, pools := make([]MemberAction, len(members)), map[string]*pool{}
	for _, m := range members {
		p := pools[m.Membership.Pool]
		if p == nil {
			p = &pool{}
			pools[m.Membership.Pool] = p
		}
		p.count(m.Status)
	}
	for _, i := range order(members) {
		steps[i] = step(members[i], pools[members[i].Membership.Pool], floor)
	}
	return steps
}

// order returns the indexes of the members: urgent ones first, and then by Since.
func order(members []Member) []int {
	indexes := make([]int, len(members))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(i, j int) int {
		a, b := members[i], members[j]
		switch {
		case a.Urgent != b.Urgent && a.Urgent:
			return -1
		case a.Urgent != b.Urgent:
			return 1
		default:
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node))
		}
	})
	return indexes
}

func step(m Member, p *pool, floor int) MemberAction {
	switch {
	case m.Gone && (!m.Volatile || !m.Taken):
		return MemberAction{} // The membership belongs to the host that registers the address next.
	case m.Out && m.Status.State == balancer.Attached:
		return p.leave(m, floor)
	case m.Out, !m.Taken, m.Gone:
		return MemberAction{}
	}
	switch m.Status.State {
	case balancer.Attached, balancer.Absent:
		return m.release()
	case balancer.Draining, balancer.Drained:
		switch {
		case m.Successor == "":
			return MemberAction{Act: Restore}
		case m.Found:
			return MemberAction{Act: HandOver}
		default:
			return MemberAction{} // The successor has not answered yet.
		}
	case balancer.Disabled: // The drain may show again when another party enables the member.
		if m.Closing {
			return m.release()
		}
		return MemberAction{}
	default:
		return MemberAction{} // The state is unknown.
	}
}

// release removes a Member from the record. It waits while a part of the load balancer does not answer, because that
// part may still drain the member.
func (m Member) release() MemberAction {
	if m.Status.Partial {
		return MemberAction{}
	}
	return MemberAction{Act: Release}
}

// pool counts the members of a pool that get new connections.
type pool struct {
	// counted means that the load balancer reported the number. unknown means that it did not report it for an attached
	// member.
	counted, unknown bool
	serving          int
}

// count adds the status of one member. All members of a pool report the same number unless it changes meanwhile; the
// smallest counts.
func (p *pool) count(s balancer.Status) {
	if s.Others == nil {
		p.unknown = p.unknown || s.State == balancer.Attached
		return
	}
	serving := *s.Others
	if s.State == balancer.Attached {
		serving++
	}
	if !p.counted || serving < p.serving {
		p.counted, p.serving = true, serving
	}
}

// leave drains a member if enough others remain.
func (p *pool) leave(m Member, floor int) MemberAction {
	switch {
	case m.Urgent, floor == 0:
	case p.unknown:
		return MemberAction{Held: "the number of other members that get connections is unknown"}
	case p.serving-1 < floor:
		return MemberAction{Held: fmt.Sprintf("only %d other members get connections, and %d must", max(p.serving-1, 0), floor)}
	}
	p.serving--
	return MemberAction{Act: Drain}
}

// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

// runs is a Node that is attached.
var runs = plan.Node{Known: true, Exists: true, UID: "n1", Ready: true}

func with(change func(*plan.Node)) plan.Node {
	n := runs
	change(&n)
	return n
}

func tainted(key, value string) plan.Node {
	return with(func(n *plan.Node) { n.Taints = []plan.Taint{{Key: key, Value: value}} })
}

func TestTriggersOfANode(t *testing.T) {
	t.Parallel()
	keys := []string{"karpenter.sh/disrupted", "aws-node-termination-handler/*"}
	for name, tc := range map[string]struct {
		reason string
		node   plan.Node
		want   plan.Trigger
	}{
		"Runs":             {"Nobody wants it out.", runs, ""},
		"Cordoned":         {"Somebody drains it.", with(func(n *plan.Node) { n.Unschedulable = true }), plan.Cordoned},
		"CordonedByUs":     {"Our own cordon says nothing new.", with(func(n *plan.Node) { n.Unschedulable, n.CordonedByUs = true, true }), ""},
		"Autoscaler":       {"It is about to be deleted.", tainted(plan.AutoscalerTaint, "1763887000"), "Taint ToBeDeletedByClusterAutoscaler"},
		"OurTaint":         {"A driver has set it.", tainted(plan.AutoscalerTaint, plan.OurTaintValue), ""},
		"Candidate":        {"The autoscaler only thinks of it.", tainted("DeletionCandidateOfClusterAutoscaler", "1"), ""},
		"Karpenter":        {"A flag names it.", tainted("karpenter.sh/disrupted", ""), "Taint karpenter.sh/disrupted"},
		"TerminationSpot":  {"A flag names all that begin so.", tainted("aws-node-termination-handler/spot-itn", "x"), "Taint aws-node-termination-handler/spot-itn"},
		"Dedicated":        {"It only chooses its pods.", tainted("dedicated", "gpu"), ""},
		"ControlPlane":     {"It is one, and stays.", tainted("node-role.kubernetes.io/control-plane", ""), ""},
		"OutdatedRevision": {"Cluster API puts it on each old Node of a rollout.", tainted("node.cluster.x-k8s.io/outdated-revision", ""), ""},
		"New":              {"It is not ready yet.", tainted("node.kubernetes.io/not-ready", ""), ""},
		"Asked":            {"A person wants it out.", with(func(n *plan.Node) { n.DetachAnnotation = "true" }), plan.AnnotationTrigger},
		"AskedNot":         {"A value says so, not its presence.", with(func(n *plan.Node) { n.DetachAnnotation = "false" }), ""},
		"AskedOddly":       {"Nobody knows what that means.", with(func(n *plan.Node) { n.DetachAnnotation = "True" }), ""},
		"Leaves":           {"Its machine goes.", with(func(n *plan.Node) { n.Machine = plan.Leaves; n.Unschedulable = true }), plan.Departure},
		"LeavesAtOnce":     {"Its owner is back.", with(func(n *plan.Node) { n.Machine = plan.LeavesAtOnce; n.DetachAnnotation = "true" }), plan.Emergency},
	} {
		if got := tc.node.Trigger(keys); got != tc.want {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestDecideForNode(t *testing.T) {
	t.Parallel()
	leaves := with(func(n *plan.Node) { n.Machine = plan.Leaves })
	at := func(r plan.Record) plan.Record { r.Exists = true; return r }
	out := at(plan.Record{UID: "n1", Trigger: plan.Departure, Memberships: 2, Permanent: 1})
	for name, tc := range map[string]struct {
		reason string
		node   plan.Node
		record plan.Record
		alone  bool
		want   plan.Decision
	}{
		"Unreadable": {"Unknown is not absent.", plan.Node{}, out, false, plan.Decision{}},
		"Settled":    {"A Node that has everything costs nothing.", runs, plan.Record{}, false, plan.Decision{}},
		"NoBalancer": {"Nobody needs to be told.", leaves, plan.Record{}, true, plan.Decision{}},
		"Leaves":     {"No pod comes to it any more.", leaves, plan.Record{}, false, plan.Decision{Cordon: true, Mark: true, Write: true, Trigger: plan.Departure}},
		"LeavesAlready": {"Once.", with(func(n *plan.Node) {
			n.Machine, n.Unschedulable, n.CordonedByUs, n.Marked = plan.Leaves, true, true, true
		}), out, false, plan.Decision{Trigger: plan.Departure}},
		"Uncordoned":     {"A person has taken our cordon back.", with(func(n *plan.Node) { n.Machine, n.Marked = plan.Leaves, true }), out, false, plan.Decision{Trigger: plan.Departure}},
		"Emergency":      {"Nothing is written to its Node.", with(func(n *plan.Node) { n.Machine = plan.LeavesAtOnce }), plan.Record{}, false, plan.Decision{Write: true, Trigger: plan.Emergency}},
		"Cordoned":       {"Who cordoned it wants it so.", with(func(n *plan.Node) { n.Unschedulable = true }), plan.Record{}, false, plan.Decision{Mark: true, Write: true, Trigger: plan.Cordoned}},
		"Stays":          {"Its place is given back before anything is forgotten.", with(func(n *plan.Node) { n.Unschedulable, n.CordonedByUs, n.Marked = true, true, true }), out, false, plan.Decision{Uncordon: true, Unmark: true, Write: true}},
		"Awaits":         {"The record of its departure is not in the cache yet.", with(func(n *plan.Node) { n.Machine, n.Unschedulable, n.CordonedByUs = plan.AwaitsDeparture, true, true }), plan.Record{}, false, plan.Decision{}},
		"StaysAlone":     {"Also without a load balancer.", runs, out, true, plan.Decision{Write: true}},
		"PlacesOpen":     {"A place is still to be given back.", runs, at(plan.Record{UID: "n1", Memberships: 1}), false, plan.Decision{}},
		"AllBack":        {"Nothing is left.", runs, at(plan.Record{UID: "n1"}), false, plan.Decision{Delete: true}},
		"LeftCordon":     {"A crash left it.", with(func(n *plan.Node) { n.Unschedulable, n.CordonedByUs = true, true }), plan.Record{}, false, plan.Decision{Uncordon: true}},
		"Annotated":      {"The annotation is no drain.", with(func(n *plan.Node) { n.DetachAnnotation, n.Stopped, n.Marked = "true", true, true }), at(plan.Record{UID: "n1", Trigger: plan.AnnotationTrigger}), false, plan.Decision{Resume: true, Trigger: plan.AnnotationTrigger}},
		"AnnotatedAlone": {"Also without a load balancer.", with(func(n *plan.Node) { n.DetachAnnotation, n.Stopped = "true", true }), plan.Record{}, true, plan.Decision{Resume: true}},
		"Resumes":        {"Its departure was withdrawn.", with(func(n *plan.Node) { n.Stopped = true }), plan.Record{}, true, plan.Decision{Resume: true}},
		"Gone":           {"What lasts waits for it.", plan.Node{Known: true}, out, false, plan.Decision{Write: true, Trigger: plan.Gone, Forget: true}},
		"GoneAlready":    {"Once.", plan.Node{Known: true}, at(plan.Record{UID: "n1", Trigger: plan.Gone, Memberships: 1, Permanent: 1}), false, plan.Decision{Trigger: plan.Gone}},
		"GoneForGood":    {"Nothing waits for it.", plan.Node{Known: true}, at(plan.Record{UID: "n1", Trigger: plan.Departure, Memberships: 1}), false, plan.Decision{Delete: true}},
		"Comes":          {"It takes no connections yet.", with(func(n *plan.Node) { n.UID, n.Ready = "n2", false }), at(plan.Record{UID: "n1", Trigger: plan.Gone, Memberships: 1, Permanent: 1}), false, plan.Decision{}},
		"IsBack":         {"Its place is given back.", with(func(n *plan.Node) { n.UID = "n2" }), at(plan.Record{UID: "n1", Trigger: plan.Gone, Memberships: 1, Permanent: 1}), false, plan.Decision{Write: true}},
		"NotReady":       {"It takes no connections: its machine may be away.", with(func(n *plan.Node) { n.Ready = false }), out, false, plan.Decision{}},
		"GoneOwned":      {"Its kubelet may make it anew.", plan.Node{Known: true, Owned: true}, at(plan.Record{UID: "n1", Trigger: plan.Cordoned, Memberships: 1}), false, plan.Decision{Write: true, Trigger: plan.Gone}},
		"GoneLeaves":     {"Whoever waits is told.", plan.Node{Known: true, Owned: true, Machine: plan.Leaves}, plan.Record{}, false, plan.Decision{Write: true, Trigger: plan.Gone}},
		"GoneNoOwner":    {"What waited for its Machine is forgotten.", plan.Node{Known: true}, at(plan.Record{UID: "n1", Trigger: plan.Gone, Memberships: 2, Permanent: 1}), false, plan.Decision{Write: true, Trigger: plan.Gone, Forget: true}},
		"OwnerSilent":    {"The load balancer has not answered: it may send connections yet.", plan.Node{Known: true}, at(plan.Record{UID: "n1", Trigger: plan.Emergency, Unconfirmed: true}), false, plan.Decision{Trigger: plan.Emergency}},
		"LeavesSilent":   {"The machine has missed a deadline, and is gone.", plan.Node{Known: true, Owned: true, Machine: plan.Leaves}, at(plan.Record{UID: "n1", Trigger: plan.Departure, Unconfirmed: true}), false, plan.Decision{Trigger: plan.Departure}},
		"OwnerDone":      {"It is out everywhere.", plan.Node{Known: true}, at(plan.Record{UID: "n1", Trigger: plan.Emergency}), false, plan.Decision{Delete: true}},
		"Another": {
			"It has the name alone in common.", with(func(n *plan.Node) { n.UID, n.ProviderID = "n2", "i-2" }),
			at(plan.Record{UID: "n1", ProviderID: "i-1", Trigger: plan.Gone, Memberships: 2, Permanent: 1}), false,
			plan.Decision{Write: true, Forget: true},
		},
		"OwnerUnseen": {"Its Machine says who it is.", plan.Node{Identity: "192.0.2.1", Machine: plan.LeavesAtOnce}, plan.Record{}, false, plan.Decision{Write: true, Trigger: plan.Emergency}},
		"OwnerGone":   {"Its place may be taken yet.", plan.Node{Known: true, Owned: true, Identity: "192.0.2.1", Machine: plan.LeavesAtOnce}, plan.Record{}, false, plan.Decision{Write: true, Trigger: plan.Emergency}},
		"OwnerTold":   {"Once.", plan.Node{Identity: "192.0.2.1", Machine: plan.LeavesAtOnce}, at(plan.Record{Trigger: plan.Emergency}), false, plan.Decision{Trigger: plan.Emergency}},
	} {
		if diff := cmp.Diff(tc.want, plan.Decide(tc.node, tc.record, !tc.alone, nil)); diff != "" {
			t.Errorf("%s: %s -want, +got:\n%s", name, tc.reason, diff)
		}
	}
}

func attached(others int) balancer.Status {
	return balancer.Status{State: balancer.Attached, Others: &others}
}

func in(state balancer.State) balancer.Status {
	return balancer.Status{State: state, Others: new(2)}
}

func TestRoundForOneMember(t *testing.T) {
	t.Parallel()
	place := balancer.Membership{Pool: "web", Member: "ws-1"}
	for name, tc := range map[string]struct {
		reason string
		member plan.Member
		want   plan.MemberAction
	}{
		"Out":             {"It is taken out.", plan.Member{Out: true, Status: attached(1)}, plan.MemberAction{Act: plan.Drain}},
		"Last":            {"Somebody must serve.", plan.Member{Out: true, Status: attached(0)}, plan.MemberAction{Held: "only 0 other members get connections, and 1 must"}},
		"LastAtOnce":      {"An owner waits for nobody.", plan.Member{Out: true, Urgent: true, Status: attached(0)}, plan.MemberAction{Act: plan.Drain}},
		"Uncounted":       {"Unknown is not enough.", plan.Member{Out: true, Status: balancer.Status{State: balancer.Attached}}, plan.MemberAction{Held: "the number of other members that get connections is unknown"}},
		"TakenAndBack":    {"The load balancer has forgotten.", plan.Member{Out: true, Taken: true, Status: attached(1)}, plan.MemberAction{Act: plan.Drain}},
		"Drains":          {"It is waited for.", plan.Member{Out: true, Taken: true, Status: in(balancer.Draining)}, plan.MemberAction{}},
		"DrainedByOthers": {"It is not ours.", plan.Member{Out: true, Status: in(balancer.Drained)}, plan.MemberAction{}},
		"DisabledOut":     {"It is not ours.", plan.Member{Out: true, Status: in(balancer.Disabled)}, plan.MemberAction{}},
		"Unknown":         {"Nothing is taken by hearsay.", plan.Member{Out: true, Status: in(balancer.Unknown)}, plan.MemberAction{}},
		"In":              {"It is given back.", plan.Member{Taken: true, Status: in(balancer.Drained)}, plan.MemberAction{Act: plan.Restore}},
		"InStillDrains":   {"At once.", plan.Member{Taken: true, Status: in(balancer.Draining)}, plan.MemberAction{Act: plan.Restore}},
		"IsIn":            {"It has its place.", plan.Member{Taken: true, Status: attached(1)}, plan.MemberAction{Act: plan.Release}},
		"PoolIsGone":      {"There is no place any more.", plan.Member{Taken: true, Status: in(balancer.Absent)}, plan.MemberAction{Act: plan.Release}},
		"DisabledIn":      {"Somebody else wants it out now; it may be drained behind that.", plan.Member{Taken: true, Status: in(balancer.Disabled)}, plan.MemberAction{}},
		"DisabledLast":    {"It is theirs now.", plan.Member{Taken: true, Closing: true, Status: in(balancer.Disabled)}, plan.MemberAction{Act: plan.Release}},
		"InUnknown":       {"It stays on record.", plan.Member{Taken: true, Status: in(balancer.Unknown)}, plan.MemberAction{}},
		"PartlyOut":       {"Those that answer are told.", plan.Member{Out: true, Status: balancer.Status{State: balancer.Attached, Others: new(1), Partial: true}}, plan.MemberAction{Act: plan.Drain}},
		"PartlyIn":        {"Those that answer are told.", plan.Member{Taken: true, Status: balancer.Status{State: balancer.Drained, Partial: true}}, plan.MemberAction{Act: plan.Restore}},
		"IsPartlyIn":      {"Another part may have it drain yet.", plan.Member{Taken: true, Status: balancer.Status{State: balancer.Attached, Others: new(1), Partial: true}}, plan.MemberAction{}},
		"PoolIsPartly":    {"It may be there.", plan.Member{Taken: true, Status: balancer.Status{State: balancer.Absent, Partial: true}}, plan.MemberAction{}},
		"NotOurs":         {"We did not take it.", plan.Member{Status: in(balancer.Drained)}, plan.MemberAction{}},
		"NodeIsGone":      {"Nobody is there to serve.", plan.Member{Taken: true, Gone: true, Status: in(balancer.Drained)}, plan.MemberAction{}},
		"GoneAndBack":     {"Another host has registered the address.", plan.Member{Out: true, Taken: true, Gone: true, Status: attached(1)}, plan.MemberAction{}},
		"GoneAndReloaded": {"The load balancer has forgotten.", plan.Member{Out: true, Taken: true, Gone: true, Volatile: true, Status: attached(1)}, plan.MemberAction{Act: plan.Drain}},
	} {
		tc.member.Membership = place
		if diff := cmp.Diff([]plan.MemberAction{tc.want}, plan.Round([]plan.Member{tc.member}, 1)); diff != "" {
			t.Errorf("%s: %s -want, +got:\n%s", name, tc.reason, diff)
		}
	}
}

// TestAPoolKeepsItsFloor: all members of a pool must leave.
func TestAPoolKeepsItsFloor(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC)
	var members []plan.Member
	for i, node := range []string{"a", "b", "c", "d"} {
		members = append(members, plan.Member{
			Node: node, Out: true, Since: start.Add(time.Duration(-i) * time.Minute), Membership: balancer.Membership{Pool: "web", Member: node}, Status: attached(3),
		})
	}
	for floor, want := range map[int]string{0: "abcd", 1: "bcd", 2: "cd", 3: "d", 4: ""} {
		out := ""
		for i, s := range plan.Round(members, floor) {
			if s.Act == plan.Drain {
				out += members[i].Node
			}
		}
		if out != want {
			t.Errorf("of four with floor %d, %q are taken out, want those %q who have waited for longest", floor, out, want)
		}
	}
	members[0].Urgent = true
	if steps := plan.Round(members, 3); steps[0].Act != plan.Drain || steps[3].Act != "" {
		t.Errorf("an owner's machine counts, and comes first: %+v", steps)
	}
	members[2].Membership.Pool = "other"
	members[2].Status = attached(0)
	if steps := plan.Round(members, 1); steps[2].Held == "" || steps[3].Act != plan.Drain {
		t.Errorf("each pool has its own floor: %+v", steps)
	}
}

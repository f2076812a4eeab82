// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

// The pods of a DaemonSet on a Node.
var (
	serves = plan.Pod{UID: "p1", Revision: "1", Ready: true}
	starts = plan.Pod{UID: "p2", Revision: "2"}
	isNew  = plan.Pod{UID: "p2", Revision: "2", Ready: true}
	ends   = plan.Pod{UID: "p1", Revision: "1", Ready: true, Terminating: true}
)

// ingress returns a DaemonSet that load balancers name, on a Node.
func ingress(pods ...plan.Pod) plan.DaemonSet {
	return plan.DaemonSet{Name: "edge/ingress", LoadBalancers: []string{"web", "api"}, Rolled: true, Known: true, Pods: pods}
}

func TestDecideForNodeWithReplacedPod(t *testing.T) {
	t.Parallel()
	const ended, rolled = plan.Trigger("DaemonSetPod edge/ingress"), plan.Trigger("DaemonSetRoll edge/ingress")
	somebody, us := []plan.Replacement{{DaemonSet: "edge/ingress"}}, []plan.Replacement{{DaemonSet: "edge/ingress", Pod: "p1"}}
	both := []string{"api", "web"}
	on := func(trigger plan.Trigger, about []string, r []plan.Replacement) plan.Record {
		return plan.Record{Exists: true, UID: "n1", Trigger: trigger, LoadBalancers: about, Replaces: r, Memberships: 1}
	}
	has := func(d ...plan.DaemonSet) plan.Node { return with(func(n *plan.Node) { n.DaemonSets = d }) }
	awaits := func(d plan.DaemonSet) plan.Node {
		return with(func(n *plan.Node) { n.DaemonSets, n.Machine = []plan.DaemonSet{d}, plan.AwaitsDeparture })
	}
	cordoned := func(d plan.DaemonSet) plan.Node {
		return with(func(n *plan.Node) { n.DaemonSets, n.Unschedulable, n.Marked = []plan.DaemonSet{d}, true, true })
	}
	next := ingress(serves)
	next.Next = "p1"
	unread := plan.DaemonSet{Name: "edge/ingress", LoadBalancers: both, Rolled: true}
	dns := plan.DaemonSet{Name: "edge/dns", LoadBalancers: []string{"dns"}, Known: true, Pods: []plan.Pod{ends}}
	given := ingress(serves)
	given.Rolled = false
	begun := plan.Decision{Write: true, Trigger: ended, LoadBalancers: both, Replaces: somebody}
	stays := plan.Decision{Trigger: ended, LoadBalancers: both, Replaces: somebody}
	rolls := plan.Decision{Trigger: rolled, LoadBalancers: both, Replaces: us}
	back := plan.Decision{Write: true}
	for name, tc := range map[string]struct {
		reason string
		node   plan.Node
		record plan.Record
		want   plan.Decision
	}{
		"Serves":      {"It costs nothing.", has(ingress(serves)), plan.Record{}, plan.Decision{}},
		"NoPod":       {"Somebody else may serve.", has(ingress()), plan.Record{}, plan.Decision{}},
		"Starts":      {"Health checks are for that.", has(ingress(starts)), plan.Record{}, plan.Decision{}},
		"Ends":        {"It takes no new connections.", has(ingress(ends)), plan.Record{}, begun},
		"EndsAlready": {"Once.", has(ingress(ends)), on(ended, both, somebody), stays},
		"Surge":       {"Another one serves.", has(ingress(ends, isNew)), plan.Record{}, plan.Decision{}},
		"IsGone":      {"Nobody serves.", has(ingress()), on(ended, both, somebody), stays},
		"ComesBack":   {"It does not serve yet.", has(ingress(starts)), on(ended, both, somebody), stays},
		"EndsAgain":   {"Nor does that one.", has(ingress(plan.Pod{UID: "p2", Terminating: true}, starts)), on(ended, both, somebody), stays},
		"IsBack":      {"It serves.", has(ingress(isNew)), on(ended, both, somebody), back},
		"Unread":      {"Unknown is not gone.", has(unread), on(ended, both, somebody), stays},
		"UnreadNew":   {"Unknown is no reason.", has(unread), plan.Record{}, plan.Decision{}},
		"Unnamed":     {"Nobody asks for it any more.", has(), on(ended, both, somebody), back},
		"NamedByMore": {"Another load balancer does.", has(ingress(ends)), on(ended, []string{"api"}, somebody), begun},
		"Another":     {"The record is of a Node of the same name.", with(func(n *plan.Node) { n.UID, n.DaemonSets = "n2", []plan.DaemonSet{ingress(starts)} }), on(ended, both, somebody), back},
		"Cordoned":    {"All load balancers are told, and what began is kept.", cordoned(ingress(ends)), on(ended, both, somebody), plan.Decision{Write: true, Trigger: plan.Cordoned, Replaces: somebody}},
		"Leaves":      {"Its pods end with it.", with(func(n *plan.Node) { n.DaemonSets, n.Machine = []plan.DaemonSet{ingress(ends)}, plan.Leaves }), plan.Record{}, plan.Decision{Cordon: true, Mark: true, Write: true, Trigger: plan.Departure}},
		"LeavesThen":  {"They do not count any more.", with(func(n *plan.Node) { n.DaemonSets, n.Machine = []plan.DaemonSet{ingress(ends)}, plan.LeavesAtOnce }), on(ended, both, somebody), plan.Decision{Write: true, Trigger: plan.Emergency}},
		"AwaitsEnds":  {"The Node gets connections until the departure starts.", awaits(ingress(ends)), plan.Record{}, begun},
		"AwaitsEnded": {"No other pod is Ready yet.", awaits(ingress(starts)), on(ended, both, somebody), stays},
		"AwaitsNext":  {"The roll has selected the Node, and continues.", awaits(next), plan.Record{}, plan.Decision{Write: true, Trigger: rolled, LoadBalancers: both, Replaces: us}},
		"AwaitsRoll":  {"The deleted pod is replaced before the Node is restored.", awaits(ingress(ends)), on(rolled, both, us), rolls},
		"WasCordoned": {"It is out for its pod alone.", with(func(n *plan.Node) {
			n.DaemonSets, n.Unschedulable, n.CordonedByUs, n.Marked = []plan.DaemonSet{ingress(ends)}, true, true, true
		}), on(plan.Departure, nil, nil), plan.Decision{Uncordon: true, Unmark: true, Write: true, Trigger: ended, LoadBalancers: both, Replaces: somebody}},
		"Next":          {"It is written down first.", has(next), plan.Record{}, plan.Decision{Write: true, Trigger: rolled, LoadBalancers: both, Replaces: us}},
		"NextCordoned":  {"Somebody has other plans.", cordoned(next), on(plan.Cordoned, nil, nil), plan.Decision{Trigger: plan.Cordoned}},
		"Waits":         {"It is deleted when the Node is out.", has(ingress(serves)), on(rolled, both, us), rolls},
		"WaitsCordoned": {"Somebody has other plans.", cordoned(ingress(serves)), on(rolled, both, us), plan.Decision{Write: true, Trigger: plan.Cordoned}},
		"WaitsNoMore":   {"Nobody wants a roll any more.", has(given), on(rolled, both, us), back},
		"Deleted":       {"Nobody serves.", has(ingress(ends)), on(rolled, both, us), rolls},
		"DeletedThen":   {"What is deleted is to be replaced.", cordoned(ingress(ends)), on(rolled, both, us), plan.Decision{Write: true, Trigger: plan.Cordoned, Replaces: us}},
		"Starting":      {"It does not serve yet.", has(ingress(starts)), on(rolled, both, us), rolls},
		"Rolled":        {"It serves.", has(ingress(isNew)), on(rolled, both, us), back},
		"Two": {
			"Each has its load balancers.", has(dns, ingress(serves)), on(rolled, both, us),
			plan.Decision{Write: true, Trigger: "DaemonSetPod edge/dns", LoadBalancers: []string{"api", "dns", "web"}, Replaces: append([]plan.Replacement{{DaemonSet: "edge/dns"}}, us...)},
		},
	} {
		if diff := cmp.Diff(tc.want, plan.Decide(tc.node, tc.record, true, nil)); diff != "" {
			t.Errorf("%s: %s -want, +got:\n%s", name, tc.reason, diff)
		}
	}
}

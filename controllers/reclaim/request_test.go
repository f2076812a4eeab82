// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

var noon = time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)

// requestingNode returns a Node that was created at born, with a request at the given time by its own clock.
func requestingNode(born, asked time.Time, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", UID: "u1", CreationTimestamp: metav1.NewTime(born),
		Annotations: map[string]string{
			reclaimapi.RequestedAnnotation:   "true",
			reclaimapi.ReasonAnnotation:      "process-match: java",
			reclaimapi.RequestedAtAnnotation: asked.Format(time.RFC3339),
		},
	}}
	if change != nil {
		change(n)
	}
	return n
}

// ready makes the Node ready since an instant by its own clock.
func ready(since time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	}
}

// untimed makes the request one of a person: without a time, and stored at the given instant of the API server's clock.
func untimed(stored time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		delete(n.Annotations, reclaimapi.RequestedAtAnnotation)
		n.ManagedFields = written(stored)
	}
}

// mirroring returns a Machine with the Node's machine ID, as Cluster API mirrors it.
func mirroring(m *clusterv1.Machine, machineID string) *clusterv1.Machine {
	m = m.DeepCopy()
	m.Status.NodeInfo = &corev1.NodeSystemInfo{MachineID: machineID}
	return m
}

func TestJudge(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}}
	machine.Spec.ProviderID = "lab://box"
	machine.Status.NodeInfo = &corev1.NodeSystemInfo{MachineID: "0123"}
	before, after := noon.Add(-time.Hour), noon.Add(time.Hour)
	cases := map[string]struct {
		reason  string
		node    *corev1.Node
		machine *clusterv1.Machine
		served  v1alpha1.ReclaimRecord
		want    lifecycle.Request
	}{
		"NoNode":      {"A Node that cannot be seen asks for nothing.", nil, machine, v1alpha1.ReclaimRecord{}, lifecycle.NoRequest},
		"NotAsking":   {"Only the literal true asks.", requestingNode(after, after, func(n *corev1.Node) { n.Annotations[reclaimapi.RequestedAnnotation] = "True" }), machine, v1alpha1.ReclaimRecord{}, lifecycle.NoRequest},
		"Fresh":       {"The Node is of this Machine.", requestingNode(after, after, nil), machine, v1alpha1.ReclaimRecord{}, lifecycle.FreshRequest},
		"ClockBehind": {"A Node younger than the Machine cannot carry an older request, whatever its clock says.", requestingNode(after, before, nil), machine, v1alpha1.ReclaimRecord{}, lifecycle.FreshRequest},
		"ClockAhead":  {"A clock that runs ahead must not cost the owner the box.", requestingNode(before, after.Add(24*time.Hour), nil), machine, v1alpha1.ReclaimRecord{}, lifecycle.FreshRequest},
		"Older":       {"Left behind by an earlier Machine.", requestingNode(before, before, nil), machine, v1alpha1.ReclaimRecord{}, lifecycle.StaleRequest},
		"ClusterClockBehind": {
			"The clocks of the workload cluster are an hour behind: both times on the Node are of the same clock.",
			requestingNode(before, before, func(n *corev1.Node) { n.ManagedFields = written(before); ready(before.Add(-time.Minute))(n) }), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.FreshRequest,
		},
		"OlderThanTheJoin": {
			"The host has joined again since: an earlier owner's request does not take the machine.",
			requestingNode(before, before, ready(after)), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.StaleRequest,
		},
		"OlderAndNotReady": {
			"The host has not joined yet: what is on its Node is older.",
			requestingNode(before, before, func(n *corev1.Node) {
				ready(before.Add(-time.Minute))(n)
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			}), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.StaleRequest,
		},
		"AskedBeforeAMove": {
			"clusterctl move makes the Machine anew, and the owner still waits.",
			requestingNode(before, before, nil), moved(machine, before.Add(-time.Hour)),
			v1alpha1.ReclaimRecord{},
			lifecycle.FreshRequest,
		},
		"ServerClockBeatsNodeClock": {
			"The API server saw the request written during the Machine's life.",
			requestingNode(before, before, func(n *corev1.Node) { n.ManagedFields = written(after) }), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.FreshRequest,
		},
		"ServerClockTellsOld": {
			"The Node's clock runs ahead, the API server's does not.",
			requestingNode(before, after, func(n *corev1.Node) { n.ManagedFields = written(before) }), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.StaleRequest,
		},
		"NoTime": {
			"Where it cannot be told, the owner wins.",
			requestingNode(before, before, func(n *corev1.Node) { delete(n.Annotations, reclaimapi.RequestedAtAnnotation) }), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.FreshRequest,
		},
		"UnreadableTime": {
			"The same as no time.",
			requestingNode(before, before, func(n *corev1.Node) { n.Annotations[reclaimapi.RequestedAtAnnotation] = "yesterday" }), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.FreshRequest,
		},
		"ServedWithoutATime": {
			"The API server stored both at one time: they are one request.",
			requestingNode(after, after, untimed(after)), machine,
			v1alpha1.ReclaimRecord{Node: "n1", NodeUID: "u1", StoredAt: after.Format(time.RFC3339)},
			lifecycle.ServedRequest,
		},
		"AskedAgainWithoutATime": {
			"The API server stored this one later.",
			requestingNode(after, after, untimed(after.Add(time.Second))), machine,
			v1alpha1.ReclaimRecord{Node: "n1", NodeUID: "u1", StoredAt: after.Format(time.RFC3339)},
			lifecycle.FreshRequest,
		},
		"Served": {
			"It has been answered; all that is left is to take it off.",
			requestingNode(after, after, nil), nil,
			v1alpha1.ReclaimRecord{Node: "n1", NodeUID: "u1", RequestedAt: after.Format(time.RFC3339)},
			lifecycle.ServedRequest,
		},
		"AnotherHost": {
			"Another host has taken the name.",
			requestingNode(after, after, func(n *corev1.Node) { n.Spec.ProviderID = "lab://other" }), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.ForeignRequest,
		},
		"AnotherMachineID": {
			"It said something else first. Cluster API mirrors what it says now.",
			requestingNode(after, after, func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "ffff" }), mirroring(machine, "ffff"),
			v1alpha1.ReclaimRecord{},
			lifecycle.ForeignRequest,
		},
		"SameHost": {
			"Both are those of the Machine.",
			requestingNode(after, after, func(n *corev1.Node) {
				n.Spec.ProviderID, n.Status.NodeInfo.MachineID = "lab://box", "0123"
			}), machine,
			v1alpha1.ReclaimRecord{},
			lifecycle.FreshRequest,
		},
		"HostUnknown": {
			"Cluster API has not reported on the host: the owner wins.",
			requestingNode(after, after, func(n *corev1.Node) { n.Spec.ProviderID = "lab://other" }),
			&clusterv1.Machine{ObjectMeta: machine.ObjectMeta},
			v1alpha1.ReclaimRecord{},
			lifecycle.FreshRequest,
		},
		"ServedOnAnotherNode": {
			"Another Node of the same name is another Node.",
			requestingNode(after, after, nil), machine,
			v1alpha1.ReclaimRecord{Node: "n1", NodeUID: "u0", RequestedAt: after.Format(time.RFC3339)},
			lifecycle.FreshRequest,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := reclaim.Classify(tc.node, tc.machine, tc.served, hostOf(tc.machine)); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
			if tc.node == nil {
				return
			}
			trimmed, err := workload.TrimNode(tc.node.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			if got := reclaim.Classify(trimmed.(*corev1.Node), tc.machine, tc.served, hostOf(tc.machine)); got != tc.want {
				t.Errorf("from the cache, whose Nodes are trimmed: got %q, want %q", got, tc.want)
			}
		})
	}
}

// hostOf returns the accepted host data of a Machine whose Node is n1.
func hostOf(m *clusterv1.Machine) children.Host {
	h := ingest.Host{Node: "n1", MachineID: "0123"}
	if m != nil {
		h.ProviderID = m.Spec.ProviderID
	}
	return children.Host{Host: h, Reported: h}
}

// TestANodeThatIsNotBelievedHasToProveItself checks two directions. A write to a Machine must not cost an owner the
// machine, and a Node of another host must not eject it.
func TestANodeThatIsNotBelievedHasToProveItself(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}}
	known := ingest.Host{Node: "n1", ProviderID: "lab://box", MachineID: "0123"}
	says := func(node, id string) ingest.Host { return ingest.Host{Node: node, ProviderID: id} }
	for name, tc := range map[string]struct {
		reason             string
		believed, says     ingest.Host
		node, id, hostSays string
		want               lifecycle.Request
	}{
		"BelievedStays":     {"The Machine names another Node; the accepted one has the request.", known, says("n2", "lab://box"), "n1", "lab://box", "0123", lifecycle.FreshRequest},
		"ChangedID":         {"The ID of the Machine was changed.", known, says("n1", "lab://else"), "n1", "lab://box", "0123", lifecycle.FreshRequest},
		"ChangedIDs":        {"A provider has renamed its machines.", known, says("n1", "lab://else"), "n1", "lab://else", "0123", lifecycle.FreshRequest},
		"OtherNodeOfHost":   {"The host has joined by another name.", known, says("n2", "lab://box"), "n2", "lab://box", "", lifecycle.FreshRequest},
		"OtherNode":         {"It is another host's.", known, says("n2", "lab://box"), "n2", "lab://other", "", lifecycle.ForeignRequest},
		"OtherNodeUnknown":  {"It does not say whose it is.", known, says("n2", "lab://box"), "n2", "", "", lifecycle.ForeignRequest},
		"SharedProves":      {"No Node was accepted before: the owner wins.", ingest.Host{}, says("n1", "lab://box"), "n1", "lab://box", "", lifecycle.FreshRequest},
		"SharedDoesNot":     {"Another Machine has this Node.", ingest.Host{}, says("n1", "lab://box"), "n1", "lab://other", "", lifecycle.ForeignRequest},
		"SharedUnknown":     {"Nothing says that it is this host.", ingest.Host{}, says("n1", ""), "n1", "lab://other", "", lifecycle.ForeignRequest},
		"AnotherMachineID":  {"Another host has taken the name.", known, says("n1", "lab://box"), "n1", "lab://box", "ffff", lifecycle.ForeignRequest},
		"WithoutProviderID": {"Where it cannot be told, the owner wins.", known, says("n1", "lab://box"), "n1", "", "", lifecycle.FreshRequest},
	} {
		t.Run(name, func(t *testing.T) {
			node := requestingNode(noon, noon, func(n *corev1.Node) {
				n.Name, n.Spec.ProviderID, n.Status.NodeInfo.MachineID = tc.node, tc.id, tc.hostSays
			})
			if got := reclaim.Classify(node, machine, v1alpha1.ReclaimRecord{}, children.Host{Host: tc.believed, Reported: tc.says}); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// moved returns a Machine that was created on another management cluster.
func moved(machine *clusterv1.Machine, created time.Time) *clusterv1.Machine {
	machine = machine.DeepCopy()
	machine.Annotations = map[string]string{v1alpha1.CreatedAnnotation: created.Format(time.RFC3339)}
	return machine
}

// written returns the managed fields of an agent that wrote its request at t.
func written(t time.Time) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Time: new(metav1.NewTime(t.Add(-1000 * time.Hour))), FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
		{Manager: reclaimapi.FieldManager, Time: new(metav1.NewTime(t)), FieldsV1: metav1.NewFieldsV1(
			`{"f:metadata":{"f:annotations":{"f:5spot.finos.org/reclaim-requested":{}}}}`)},
	}
}

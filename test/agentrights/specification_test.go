// SPDX-License-Identifier: Apache-2.0

package agentrights

import (
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The Nodes: each has labels, a taint, and annotations of other writers; asking also has a request.
const (
	own     = "own"     // the Node of the token
	asking  = "asking"  // also a Node of a token, with a request on it
	other   = "other"   // a Node of another machine
	renewed = "renewed" // a Node that was created again with another UID
)

// The tokens, all of the agent's service account.
const (
	bound   = "bound"   // bound to a pod on the Node own, and issued before that registered
	served  = "served"  // bound to a pod on the Node asking
	former  = "former"  // bound to a pod on the earlier Node with the name renewed
	unbound = "unbound" // not bound
)

// lab is the field manager that applied the Nodes.
const lab = "lab"

// theirs are the annotations that the agent may write.
var theirs = []string{reclaim.RequestedAnnotation, reclaim.ReasonAnnotation, reclaim.RequestedAtAnnotation, reclaim.StateAnnotation, reclaim.HoldAnnotation}

// states are the valid states of an agent.
var states = []string{
	reclaim.AgentState{Detector: "netlink", Config: reclaim.ConfigFor([]string{"java"}).Hash()}.Text(),
	reclaim.AgentState{Detector: "poll", Config: reclaim.ConfigFor([]string{"idea"}).Hash()}.Text(),
	reclaim.AgentState{Detector: reclaim.NoDetector, Config: reclaim.Config{}.Hash()}.Text(),
}

// nodeOf returns a Node as it was applied.
func nodeOf(name string) *corev1.Node {
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"team": "lab", reclaim.AgentLabel: reclaim.AgentLabelValue},
			Annotations: map[string]string{"example.org/kept": "x", "cluster.x-k8s.io/machine": name},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "example.org/kept", Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}, // every new Node gets this
		}},
	}
	if name == asking {
		node.Annotations[reclaim.RequestedAnnotation] = "true"
		node.Annotations[reclaim.ReasonAnnotation] = reclaim.Reason("idea")
		node.Annotations[reclaim.RequestedAtAnnotation] = "2026-04-20T21:00:00Z"
		// A value that no agent writes comes from another writer, and has no effect.
		node.Annotations[reclaim.StateAnnotation] = long
		node.Annotations[reclaim.HoldAnnotation] = long
	}
	return node
}

// A form is a format of a change.
type form struct {
	contentType types.PatchType
	query       string
}

// A change is the effect of a request on a Node.
type change struct {
	what string
	// path is the path below the Node, in parts. value is the new value; nil removes.
	path  []string
	value any
	// more are further changes in the same request.
	more []change
	// allowed is the specification for the Node of the token. All other Nodes are denied.
	allowed bool
	// asking is the specification for a Node that has a request already.
	asking bool
	// holds is the specification for both, in a Cluster with a reclaimHold.
	holds bool
}

// reportsHold is a change that is allowed only in a Cluster with a reclaimHold.
func reportsHold(what string, value any) change {
	c := annotation(what, reclaim.HoldAnnotation, value, false, false)
	c.holds = true
	return c
}

func annotation(what, key string, value any, allowed, asking bool) change {
	return change{what: what, path: []string{"metadata", "annotations", key}, value: value, allowed: allowed, asking: asking}
}

var long = strings.Repeat("x", 301)

// changes are the rows of the specification.
var changes = []change{
	annotation("asks", reclaim.RequestedAnnotation, "true", true, true),
	annotation("says why", reclaim.ReasonAnnotation, "process-match: java", true, true),
	annotation("says the longest why", reclaim.ReasonAnnotation, long[:300], true, true),
	annotation("says since when", reclaim.RequestedAtAnnotation, "2026-04-20T21:45:00Z", true, true),
	{
		what: "asks and says why and since when", path: []string{"metadata", "annotations", reclaim.RequestedAnnotation}, value: "true", allowed: true, asking: true,
		more: []change{
			annotation("", reclaim.ReasonAnnotation, "process-match: java", true, true),
			annotation("", reclaim.RequestedAtAnnotation, "2026-04-20T21:45:00Z", true, true),
		},
	},
	{
		what: "asks, and labels besides", path: []string{"metadata", "annotations", reclaim.RequestedAnnotation}, value: "true",
		more: []change{{path: []string{"metadata", "labels", "team"}, value: "mine"}},
	},
	annotation("asks with False", reclaim.RequestedAnnotation, "false", false, false),
	annotation("asks with nothing", reclaim.RequestedAnnotation, "", false, false),
	annotation("asks in capitals", reclaim.RequestedAnnotation, "TRUE", false, false),
	annotation("says too long a why", reclaim.ReasonAnnotation, long, false, false),
	annotation("says too long a when", reclaim.RequestedAtAnnotation, long, false, false),
	annotation("says what it listens for", reclaim.StateAnnotation, states[0], true, true),
	annotation("says what it polls for", reclaim.StateAnnotation, states[1], true, true),
	annotation("says that it rests", reclaim.StateAnnotation, states[2], true, true),
	annotation("says nothing", reclaim.StateAnnotation, "", false, false),
	annotation("says that it dreams", reclaim.StateAnnotation, strings.Replace(states[1], "poll", "dreams", 1), false, false),
	annotation("says that it is blind", reclaim.StateAnnotation, reclaim.AgentState{Detector: reclaim.BlindDetector, Config: strings.Repeat("0", 16)}.Text(), true, true),
	annotation("says no configuration", reclaim.StateAnnotation, "detector=poll config=", false, false),
	annotation("says more than it may", reclaim.StateAnnotation, states[0]+" x", false, false),
	annotation("says it in another line", reclaim.StateAnnotation, "\n"+states[0], false, false),
	annotation("says another configuration", reclaim.StateAnnotation, states[0]+"0", false, false),
	{
		what: "asks, and says what it listened for", path: []string{"metadata", "annotations", reclaim.RequestedAnnotation}, value: "true", allowed: true, asking: true,
		more: []change{annotation("", reclaim.StateAnnotation, states[0], true, true)},
	},
	{
		what: "asks, and says what it may not", path: []string{"metadata", "annotations", reclaim.RequestedAnnotation}, value: "true",
		more: []change{annotation("", reclaim.StateAnnotation, "x", false, false)},
	},
	reportsHold("reports what it froze", reclaim.HoldState{Pods: 8, CPU: 9 * time.Millisecond}.Text()),
	reportsHold("reports what it killed", reclaim.HoldState{Pods: 8, Running: 1, CPU: 9 * time.Millisecond, Killed: 8, Memory: time.Minute}.Text()),
	reportsHold("reports why it cannot hold", reclaim.HoldState{Unavailable: `the host has cgroup v1, not "v2"`}.Text()),
	annotation("reports a hold in other words", reclaim.HoldAnnotation, "pods=8", false, false),
	annotation("reports a hold in another line", reclaim.HoldAnnotation, "\n"+reclaim.HoldState{Pods: 8}.Text(), false, false),
	annotation("reports an empty hold", reclaim.HoldAnnotation, "", false, false),
	annotation("reports a hold at length", reclaim.HoldAnnotation, `unavailable="`+long+`"`, false, false),
	annotation("adds an annotation", "example.org/new", "x", false, false),
	annotation("adds one of ours that is not the agent's", "5spot.finos.org/applied-taints", "[]", false, false),
	annotation("adds one that begins like the agent's", "5spot.finos.org/reclaim-requested-by", "x", false, false),
	annotation("changes an annotation", "example.org/kept", "changed", false, false),
	annotation("removes an annotation", "example.org/kept", nil, false, false),
	annotation("changes the Machine of the Node", "cluster.x-k8s.io/machine", "another", false, false),
	{what: "removes all annotations", path: []string{"metadata", "annotations"}},
	{what: "adds a label", path: []string{"metadata", "labels", "example.org/new"}, value: "x"},
	{what: "changes a label", path: []string{"metadata", "labels", "team"}, value: "mine"},
	{what: "removes a label", path: []string{"metadata", "labels", "team"}},
	{what: "opts the Node out", path: []string{"metadata", "labels", reclaim.AgentLabel}, value: "disabled"},
	{what: "replaces finalizers", path: []string{"metadata", "finalizers"}, value: []any{"example.org/mine"}},
	{what: "replaces owners", path: []string{"metadata", "ownerReferences"}, value: []any{
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "8a1e0b5f-2bb0-4b43-8a3b-9a5f2cf1c001"},
	}},
	{what: "cordons", path: []string{"spec", "unschedulable"}, value: true},
	{what: "replaces taints", path: []string{"spec", "taints"}, value: []any{map[string]any{"key": "mine", "effect": "NoExecute"}}},
	{what: "sets the provider's ID", path: []string{"spec", "providerID"}, value: "mine://1"},
	{what: "is being deleted", path: []string{"metadata", "deletionTimestamp"}, value: "2020-01-01T00:00:00Z"},
	{what: "becomes another object", path: []string{"metadata", "uid"}, value: "8a1e0b5f-2bb0-4b43-8a3b-9a5f2cf1c001"},
	// The API server manages managedFields, and shortens them itself after many writers. A rule about them could deny
	// an owner's request.
	{what: "forgets who wrote what", path: []string{"metadata", "managedFields"}, value: []any{map[string]any{}}, allowed: true, asking: true},
	{what: "says that another wrote it", path: []string{"metadata", "managedFields"}, value: []any{map[string]any{
		"manager": "mine", "operation": "Update", "apiVersion": "v1", "time": "2020-01-01T00:00:00Z",
		"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:metadata": map[string]any{"f:labels": map[string]any{"f:team": map[string]any{}}}},
	}}, allowed: true, asking: true},
	// The API server ignores these.
	{what: "becomes another machine", path: []string{"status", "nodeInfo", "machineID"}, value: "mine", allowed: true, asking: true},
	{what: "becomes older", path: []string{"metadata", "creationTimestamp"}, value: "2020-01-01T00:00:00Z", allowed: true, asking: true},
}

// removals are changes that only have an effect on a Node with a request.
var removals = []change{
	annotation("takes the request back", reclaim.RequestedAnnotation, nil, false, false),
	annotation("takes the reason back", reclaim.ReasonAnnotation, nil, false, false),
	annotation("takes the time back", reclaim.RequestedAtAnnotation, nil, false, false),
	annotation("takes back what it said", reclaim.StateAnnotation, nil, false, false),
	reportsHold("removes its report of a hold", nil),
}

// allows combines the specification: the token must be of a pod on this Node, and the row must allow the change.
func (c change) allows(token, node string, holds bool) bool {
	switch {
	case token == bound && node == own:
		return c.allowed || c.holds && holds
	case token == served && node == asking:
		return c.asking || c.holds && holds
	default:
		return false
	}
}

// An application is a change as lab: fields that lab applied before and does not apply now are removed.
type application struct {
	what, node string
	form
	body    any
	allowed bool
}

func applies() []application {
	with := func(node *corev1.Node, change func(annotations map[string]string)) *corev1.Node {
		change(node.Annotations)
		return node
	}
	bare := &corev1.Node{TypeMeta: nodeOf(own).TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: own, Annotations: map[string]string{}}}
	absent := bare.DeepCopy()
	absent.Name = "any"
	asks := func(annotations map[string]string) { annotations[reclaim.RequestedAnnotation] = "true" }
	as := form{types.ApplyYAMLPatchType, "force=true&fieldManager=" + lab}
	return []application{
		{"asks as lab", own, as, with(nodeOf(own), asks), true},
		{"asks as lab, and drops what lab applied", own, as, with(bare, asks), false},
		{"drops the request that lab applied", asking, as, with(nodeOf(asking), func(annotations map[string]string) {
			for _, key := range theirs {
				delete(annotations, key)
			}
		}), false},
		{"makes a Node", absent.Name, as, with(absent, asks), false},
	}
}

// A call is a request other than a change of a Node itself.
type call struct {
	verb, path string
	allowed    bool
}

// calls are the remaining specification, for every token: RBAC decides.
func calls() []call {
	var out []call
	add := func(allowed bool, path string, verbs ...string) {
		for _, verb := range verbs {
			out = append(out, call{verb, path, allowed})
		}
	}
	for _, node := range []string{own, asking, other, renewed} {
		at := "/api/v1/nodes/" + node
		add(true, at, "GET")
		add(false, at, "PUT", "DELETE")
		add(false, at+"/status", "GET", "PUT", "PATCH")
		add(false, at+"/proxy/pods", "GET", "POST", "PUT", "DELETE")
		add(false, at+"/finalize", "GET", "PUT")
	}
	add(false, "/api/v1/nodes", "GET", "POST", "DELETE")
	add(false, "/api/v1/nodes?watch=true", "GET")
	configMaps := "/api/v1/namespaces/5spot-system/configmaps"
	add(true, configMaps, "GET")
	add(true, configMaps+"/"+reclaim.ConfigMapName(own), "GET")
	add(true, configMaps+"?watch=true&timeoutSeconds=1", "GET")
	add(false, configMaps, "POST", "DELETE")
	add(false, configMaps+"/"+reclaim.ConfigMapName(own), "PUT", "PATCH", "DELETE")
	add(false, "/api/v1/namespaces/kube-system/configmaps", "GET", "POST", "DELETE")
	add(false, "/api/v1/configmaps", "GET")
	for _, resource := range []string{
		"/api/v1/namespaces/5spot-system/secrets", "/api/v1/namespaces/5spot-system/pods", "/api/v1/namespaces/5spot-system/events",
		"/api/v1/namespaces/5spot-system/serviceaccounts", "/apis/apps/v1/namespaces/5spot-system/daemonsets",
		"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "/api/v1/namespaces",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"/apis/certificates.k8s.io/v1/certificatesigningrequests",
	} {
		add(false, resource, "GET", "POST", "DELETE")
		add(false, resource+"/any", "GET", "PUT", "PATCH", "DELETE")
	}
	add(false, "/api/v1/namespaces/5spot-system/serviceaccounts/reclaim-agent/token", "POST")
	return out
}

// wider are requests that RBAC denies, with a valid body. The policy must deny them, too, if another binding grants
// them.
func wider() []request {
	at := "/api/v1/nodes/" + own
	merge := form{contentType: types.MergePatchType}
	asks := map[string]any{"metadata": map[string]any{"annotations": map[string]any{reclaim.RequestedAnnotation: "true"}}}
	return []request{
		{what: "becomes another machine", verb: "PATCH", path: at + "/status", form: merge, body: map[string]any{
			"status": map[string]any{"nodeInfo": map[string]any{"machineID": "mine"}},
		}},
		{what: "asks by the status", verb: "PATCH", path: at + "/status", form: merge, body: asks},
		{what: "deletes its Node", verb: "DELETE", path: at},
		{what: "deletes all Nodes", verb: "DELETE", path: "/api/v1/nodes"},
		{what: "makes a Node", verb: "POST", path: "/api/v1/nodes", body: nodeOf("made")},
		{what: "talks to its kubelet", verb: "GET", path: at + "/proxy/pods"},
	}
}

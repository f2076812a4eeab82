// SPDX-License-Identifier: Apache-2.0

package ownerrights

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// desks is the namespace of the machines.
const desks = "desks"

// The machines, which have labels, annotations and a finalizer of other writers.
const (
	lent  = "lent"  // its schedule is on
	asked = "asked" // its owner has requested it
	away  = "away"  // its owner has it, and its schedule is off
)

// The people. All but the last three are bound in the namespace.
const (
	owner    = "owner"    // has fivespot-owner-role
	oneOwner = "oneowner" // has the Role of the guide, for the machine lent only
	writer   = "writer"   // has a custom role without the verb manage
	viewer   = "viewer"   // has view
	editor   = "editor"   // has edit
	admin    = "admin"    // has admin
	manager  = "manager"  // is the manager's service account
	root     = "root"     // is an administrator of the cluster
	stranger = "stranger" // has nothing
)

var record = v1alpha1.PersonsRequest("", "Ada needs it", metav1.Unix(0, 0).Time).String()

func machineOf(name string) *v1alpha1.ScheduledMachine {
	m := &v1alpha1.ScheduledMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: desks, Name: name,
			Labels:      map[string]string{"cluster.x-k8s.io/cluster-name": "batch"},
			Annotations: map[string]string{"example.org/kept": "x", v1alpha1.ReclaimTimesAnnotation: "2026-01-01T00:00:00Z"},
			Finalizers:  []string{v1alpha1.ScheduledMachineFinalizer},
		},
		Spec: v1alpha1.ScheduledMachineSpec{
			ClusterName: "batch",
			Schedule:    v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-23"}, Enabled: new(name != away)},
			BootstrapSpec: v1alpha1.EmbeddedObject{
				APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Spec: runtime.RawExtension{Raw: []byte(`{"users":[{"name":"a"}]}`)},
			},
			InfrastructureSpec: v1alpha1.EmbeddedObject{
				APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevMachine", Spec: runtime.RawExtension{Raw: []byte(`{"nodeName":"desk-a"}`)},
			},
			KillIfCommands: []string{"idea"},
		},
	}
	switch name {
	case asked:
		m.Annotations[v1alpha1.EmergencyReclaimAnnotation] = record
	case away:
		m.Annotations[v1alpha1.ReclaimedAnnotation] = record
	}
	return m
}

// A change is a patch, and whether it is an owner's to make.
type change struct {
	what    string
	machine string
	kind    types.PatchType
	body    string
	allowed bool
}

func (c change) String() string { return fmt.Sprintf("%s (%s, %.120s)", c.what, c.kind, c.body) }

func merge(what, machine, body string, allowed bool) change {
	return change{what, machine, types.MergePatchType, body, allowed}
}

func annotate(what, machine, key string, value any, allowed bool) change {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		panic(err) // strings and nil
	}
	return merge(what, machine, string(text), allowed)
}

func apply(what, body string, allowed bool) change {
	head := `{"apiVersion":"5spot.finos.org/v1alpha1","kind":"ScheduledMachine","metadata":{"name":"` + lent + `"}`
	return change{what, lent, types.ApplyYAMLPatchType, head + body + "}", allowed}
}

// changes are the specification.
var changes = []change{
	merge("turns the kill switch on", lent, `{"spec":{"killSwitch":true}}`, true),
	merge("turns the kill switch off", lent, `{"spec":{"killSwitch":false}}`, true),
	merge("forgets the kill switch", lent, `{"spec":{"killSwitch":null}}`, true),
	merge("turns the schedule off", lent, `{"spec":{"schedule":{"enabled":false}}}`, true),
	merge("turns the schedule on", away, `{"spec":{"schedule":{"enabled":true}}}`, true),
	merge("changes nothing", lent, `{}`, true),
	annotate("asks for the machine", lent, v1alpha1.EmergencyReclaimAnnotation, record, true),
	annotate("asks with the longest reason", lent, v1alpha1.EmergencyReclaimAnnotation,
		v1alpha1.PersonsRequest(strings.Repeat("n", 253), strings.Repeat("<", 237), metav1.Unix(0, 0).Time).String(), true),
	annotate("asks without a record", lent, v1alpha1.EmergencyReclaimAnnotation, "", true),
	annotate("lends again", away, v1alpha1.ReclaimedAnnotation, nil, true),
	merge("lends again in one write", away, `{"metadata":{"annotations":{"`+v1alpha1.ReclaimedAnnotation+`":null}},"spec":{"schedule":{"enabled":true}}}`, true),
	{"asks, with a JSON patch", lent, types.JSONPatchType, `[{"op":"add","path":"/metadata/annotations/5spot.finos.org~1emergency-reclaim","value":"{}"}]`, true},
	{"turns the schedule off, with a JSON patch", lent, types.JSONPatchType, `[{"op":"replace","path":"/spec/schedule/enabled","value":false}]`, true},
	apply("turns the kill switch on, by server-side apply", `,"spec":{"killSwitch":true}`, true),

	annotate("asks with more than a reason", lent, v1alpha1.EmergencyReclaimAnnotation, strings.Repeat("x", 2049), false),
	annotate("takes a request back", asked, v1alpha1.EmergencyReclaimAnnotation, nil, false),
	annotate("rewrites a request", asked, v1alpha1.EmergencyReclaimAnnotation, "{}", false),
	annotate("says that it has the machine", lent, v1alpha1.ReclaimedAnnotation, record, false),
	annotate("rewrites that it has the machine", away, v1alpha1.ReclaimedAnnotation, "{}", false),
	annotate("hides a later request", lent, v1alpha1.LastReclaimAnnotation, record, false),
	annotate("rewrites when it was asked for", lent, v1alpha1.ReclaimTimesAnnotation, "", false),
	annotate("forgets when it was asked for", lent, v1alpha1.ReclaimTimesAnnotation, nil, false),
	annotate("rewrites how fast it was", lent, v1alpha1.GiveBacksAnnotation, "[]", false),
	annotate("pauses", lent, "cluster.x-k8s.io/paused", "", false),
	annotate("adds an annotation", lent, "example.org/new", "x", false),
	annotate("changes an annotation", lent, "example.org/kept", "y", false),
	annotate("removes an annotation", lent, "example.org/kept", nil, false),
	annotate("adds one that begins like a request", lent, v1alpha1.EmergencyReclaimAnnotation+"-2", "x", false),
	merge("removes all annotations", lent, `{"metadata":{"annotations":null}}`, false),
	merge("asks, and labels besides", lent, `{"metadata":{"labels":{"x":"y"},"annotations":{"`+v1alpha1.EmergencyReclaimAnnotation+`":"{}"}}}`, false),
	merge("adds a label", lent, `{"metadata":{"labels":{"x":"y"}}}`, false),
	merge("hides it from its shard", lent, `{"metadata":{"labels":{"cluster.x-k8s.io/watch-filter":"none"}}}`, false),
	merge("removes the labels", lent, `{"metadata":{"labels":null}}`, false),
	merge("removes the finalizer", lent, `{"metadata":{"finalizers":null}}`, false),
	merge("adds a finalizer", lent, `{"metadata":{"finalizers":["5spot.finos.org/scheduledmachine","example.org/mine"]}}`, false),
	merge("adds an owner", lent, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"8a1e0b5f-2bb0-4b43-8a3b-9a5f2cf1c001"}]}}`, false),
	merge("changes the days", lent, `{"spec":{"schedule":{"daysOfWeek":["mon"]}}}`, false),
	merge("changes the hours", lent, `{"spec":{"schedule":{"hoursOfDay":["9"]}}}`, false),
	merge("changes the zone", lent, `{"spec":{"schedule":{"timezone":"Europe/Zurich"}}}`, false),
	merge("forgets the hours", lent, `{"spec":{"schedule":{"hoursOfDay":null}}}`, false),
	merge("turns the schedule off, and changes the hours", lent, `{"spec":{"schedule":{"enabled":false,"hoursOfDay":["9"]}}}`, false),
	merge("changes the infrastructure", lent, `{"spec":{"infrastructureSpec":{"spec":{"nodeName":"desk-b"}}}}`, false),
	merge("adds to the infrastructure", lent, `{"spec":{"infrastructureSpec":{"spec":{"sshKeyRef":{"name":"x"}}}}}`, false),
	merge("takes of the infrastructure", lent, `{"spec":{"infrastructureSpec":{"spec":{"nodeName":null}}}}`, false),
	merge("changes the kind", lent, `{"spec":{"infrastructureSpec":{"kind":"OtherMachine"}}}`, false),
	merge("changes the bootstrap config", lent, `{"spec":{"bootstrapSpec":{"spec":{"users":[{"name":"b"}]}}}}`, false),
	merge("names a template", lent, `{"spec":{"infrastructureSpec":null,"infrastructureTemplateRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachineTemplate","name":"x"}}}`, false),
	merge("empties the patterns", lent, `{"spec":{"killIfCommands":null}}`, false),
	merge("changes the patterns", lent, `{"spec":{"killIfCommands":["idea","java"]}}`, false),
	merge("adds a taint", lent, `{"spec":{"nodeTaints":[{"key":"a","effect":"NoExecute"}]}}`, false),
	merge("labels the Machine", lent, `{"spec":{"machineTemplate":{"labels":{"a":"b"}}}}`, false),
	merge("changes the priority", lent, `{"spec":{"priority":7}}`, false),
	merge("changes the budget", lent, `{"spec":{"gracefulShutdownTimeout":"24h"}}`, false),
	merge("changes the drain", lent, `{"spec":{"nodeDrainTimeout":"0s"}}`, false),
	merge("turns the kill switch on, and changes the drain", lent, `{"spec":{"killSwitch":true,"nodeDrainTimeout":"0s"}}`, false),
	{"changes the days, with a JSON patch", lent, types.JSONPatchType, `[{"op":"replace","path":"/spec/schedule/daysOfWeek/0","value":"mon"}]`, false},
	{"takes a request back, with a JSON patch", asked, types.JSONPatchType, `[{"op":"remove","path":"/metadata/annotations/5spot.finos.org~1emergency-reclaim"}]`, false},
	apply("changes the days, by server-side apply", `,"spec":{"schedule":{"daysOfWeek":["mon"]}}`, false),
}

// verbs are what people may do by RBAC, on all ScheduledMachines of the namespace.
var verbs = map[string]string{
	owner:    "get list watch patch",
	writer:   "get list watch patch update",
	viewer:   "get list watch",
	editor:   "get list watch create patch update delete deletecollection manage",
	admin:    "get list watch create patch update delete deletecollection manage",
	manager:  "get list watch create patch delete manage",
	root:     "get list watch create patch update delete deletecollection manage",
	oneOwner: "",
	stranger: "",
}

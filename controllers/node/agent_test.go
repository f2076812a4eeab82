// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// optsIn are the writes that give a Node an agent.
var optsIn = []string{"create ConfigMap", "patch Node"}

func (w *world) configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: reclaim.ConfigMapName(w.node.Name)}}
}

// wantAgent checks label and ConfigMap of the Node; without programs, it must have neither.
func (w *world) wantAgent(programs ...string) {
	w.Helper()
	cm := w.configMap()
	found, want := w.Read(cm), reclaim.ConfigFor(programs).Text()
	w.Read(w.node)
	labelled := w.node.Labels[reclaim.AgentLabel] == reclaim.AgentLabelValue
	if found != (len(programs) > 0) || labelled != found || found && cm.Data[reclaim.ConfigMapKey] != want {
		w.Errorf("Node is labelled: %t; its ConfigMap exists: %t, and says %q, want %q", labelled, found, cm.Data[reclaim.ConfigMapKey], want)
	}
}

// writes reconciles twice, and checks all writes.
func (w *world) writes(reason string, want ...string) {
	w.Helper()
	w.Writes = nil
	for range 2 {
		w.Must(w.reconcile())
	}
	if diff := cmp.Diff(want, w.Writes); diff != "" && len(want)+len(w.Writes) > 0 {
		w.Errorf("%s: -want, +got:\n%s", reason, diff)
	}
}

func TestANodeGetsItsAgent(t *testing.T) {
	w := named(t)
	w.writes("the Namespace may be missing")
	w.installed("")
	w.writes("the record comes before the label", optsIn...)
	w.wantAgent("java")
	cm := w.configMap()
	w.Read(cm)
	if cm.Labels["app.kubernetes.io/name"] != "5spot" || cm.Labels["app.kubernetes.io/component"] != "reclaim-agent" {
		t.Errorf("labels of the ConfigMap are part of the contract: %v", cm.Labels)
	}
	if len(cm.OwnerReferences) != 1 || cm.OwnerReferences[0].UID != w.node.UID || cm.OwnerReferences[0].Kind != "Node" {
		t.Errorf("it goes with its Node: %v", cm.OwnerReferences)
	}
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"idea"} })
	w.writes("the agent re-arms by its ConfigMap alone", "patch ConfigMap")
	w.wantAgent("idea")
	w.Read(cm)
	w.Edit(cm, func() { cm.Data[reclaim.ConfigMapKey] = "" })
	w.Edit(w.node, func() { delete(w.node.Labels, reclaim.AgentLabel) })
	w.writes("an edit is undone", "patch ConfigMap", "patch Node")
	w.wantAgent("idea")
	w.Must(w.Client.Delete(t.Context(), cm))
	w.writes("a deletion, too", optsIn[:1]...)
	w.wantAgent("idea")
}

// deleteScheduledMachine deletes the ScheduledMachine, whose finalizer keeps it.
func (w *world) deleteScheduledMachine() {
	w.Helper()
	w.Edit(w.sm, func() { w.sm.Finalizers = []string{v1alpha1.ScheduledMachineFinalizer} })
	w.Must(w.Client.Delete(w.Context(), w.sm))
}

// TestTheAgentOfADeletedScheduledMachineStays covers a safety rail that keeps the Machine of a deleted ScheduledMachine.
func TestTheAgentOfADeletedScheduledMachineStays(t *testing.T) {
	w := named(t)
	w.installed("")
	w.deleteScheduledMachine()
	w.writes("the Machine stays, so it needs its agent", optsIn...)
	w.wantAgent("java")
	w.Edit(w.node, func() { delete(w.node.Labels, reclaim.AgentLabel) })
	w.Must(w.Client.Delete(t.Context(), w.machine()))
	w.writes("no agent for a Machine that is being deleted")
}

// TestAnAgentThatAPersonInstalledGetsItsConfiguration covers --agent-install=disabled: there is no result to wait for.
func TestAnAgentThatAPersonInstalledGetsItsConfiguration(t *testing.T) {
	w := named(t)
	w.r.Installs = false
	w.writes("a person installs the agent", optsIn...)
	w.wantAgent("java")
}

func TestAForeignConfigMapStays(t *testing.T) {
	w := named(t)
	theirs := w.configMap()
	theirs.Data = map[string]string{reclaim.ConfigMapKey: "theirs"}
	w.Create(theirs)
	w.Cleanup(func() { _ = w.Client.Delete(t.Context(), theirs) })
	w.installed("")
	w.Must(w.reconcile())
	if w.again > time.Second {
		t.Errorf("it is tried again after %v", w.again)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	if w.reconcile() == nil {
		t.Error("it must be tried again")
	}
	c := conditions.Get(w.sm, v1alpha1.OwnerProtectedCondition)
	if c == nil || c.Reason != v1alpha1.AgentNotInstalledReason || !strings.Contains(c.Message, "ConfigMap "+theirs.Name+" exists and is not managed by 5-Spot") || !strings.Contains(c.Message, "delete it") {
		t.Errorf("its owner must know: %+v", c)
	}
	w.Read(w.node)
	if w.Read(theirs); theirs.Data[reclaim.ConfigMapKey] != "theirs" || w.node.Labels[reclaim.AgentLabel] != "" {
		t.Errorf("it is changed, or the Node is opted in to it: %v, %v", theirs.Data, w.node.Labels)
	}
	w.wantEvents("Warning ReclaimAgentBlocked", "Warning ReclaimAgentBlocked", "Warning OwnerUnprotected")
}

func TestANodeIsNotDisturbed(t *testing.T) {
	cases := map[string]func(w *world){
		"Asked": func(w *world) {
			w.Edit(w.node, func() { w.node.Annotations = map[string]string{reclaim.RequestedAnnotation: reclaim.RequestedValue} })
		},
		"Remembered": func(w *world) {
			record := v1alpha1.ReclaimRecord{Reason: "process-match: java", RequestedAt: "2026-04-20T21:45:00Z", Node: w.node.Name, NodeUID: w.node.UID}
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: record.String()} })
		},
		"Paused": func(w *world) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		},
		"Departs":  func(w *world) { w.Must(w.Client.Delete(w.Context(), w.machine())) },
		"NotAsked": func(w *world) { w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil }) },
	}
	for name, begin := range cases {
		t.Run(name, func(t *testing.T) {
			w := named(t)
			w.installed("")
			begin(w)
			w.writes("no agent is added")
			w.wantAgent()
		})
	}
}

// TestAPauseOptsNothingIn covers a machine that joins while writes are suppressed. The audit log has the first
// write.
func TestAPauseOptsNothingIn(t *testing.T) {
	w, out := named(t), &bytes.Buffer{}
	gate, cache := &actuate.Gate{DryRun: true, Log: audit.New(out)}, w.r.ClusterCache
	write := w.r.Actuate
	w.r.Actuate, w.r.ClusterCache = actuate.NewGated(gate, w.Client), testenv.GatedCache(gate.Transport, cache)
	w.writes("nothing is sent")
	if n := strings.Count(out.String(), `"kind":"NodePatch"`); n == 0 || n != strings.Count(out.String(), "\n") {
		t.Errorf("told %s", out)
	}
	w.wantAgent()
	w.r.Actuate, w.r.ClusterCache = write, cache
	w.installed("")
	w.writes("after the pause", optsIn...)
}

// TestRefusedTaintsDoNotKeepTheAgentAway covers an API server that refuses the taints of a Node for good.
func TestRefusedTaintsDoNotKeepTheAgentAway(t *testing.T) {
	for name, refusal := range map[string]error{
		"Forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "x", errors.New("no taints")),
		"Conflict":  apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "x", errors.New("no taints")),
	} {
		t.Run(name, func(t *testing.T) {
			w := named(t)
			w.Edit(w.sm, func() { w.sm.Spec.NodeTaints = []v1alpha1.NodeTaint{batch} })
			w.Writes = nil
			w.Fail = func(n int) (before, after error) {
				if w.Writes[n] == "patch Node" && (n == 0 || w.Writes[n-1] != "create ConfigMap") { // It is not the label.
					return refusal, nil
				}
				return nil, nil
			}
			for range 8 {
				_ = w.reconcile() // The taints are refused.
				w.clock.SetTime(w.clock.Now().Add(5 * time.Second))
			}
			w.installed("")
			_ = w.reconcile()
			w.wantAgent("java")
			w.runAgent("java")
			_ = w.reconcile()
			if !conditions.IsTrue(w.sm, v1alpha1.OwnerProtectedCondition) {
				t.Errorf("got %+v", w.sm.Status.Conditions)
			}
			w.setReady(false)
			_ = w.reconcile()
			if w.again > 15*time.Second {
				t.Errorf("the loss of protection is reported after %v, want 15s", w.again)
			}
			w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
			_ = w.reconcile()
			if !conditions.IsFalse(w.sm, v1alpha1.OwnerProtectedCondition) {
				t.Errorf("got %+v", w.sm.Status.Conditions)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

func TestDeletionLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	l := newLab(t, "delete")
	hang := infrav1.PlaneMachineSpec{Faults: infrav1.Faults{Provision: infrav1.Hang}}
	cases := map[string]struct {
		reason string
		make   func(l *lab, name string) *v1alpha1.ScheduledMachine
	}{
		"Active": {
			reason: "a running machine departs gracefully",
			make:   func(l *lab, name string) *v1alpha1.ScheduledMachine { return l.running(name, nil) },
		},
		"ActiveWithoutANode": {
			reason: "a Machine that never got a Node departs all the same",
			make: func(l *lab, name string) *v1alpha1.ScheduledMachine {
				sm := l.started(name, nil, hang)
				l.waitPhase(sm, active, metav1.ConditionFalse)
				return sm
			},
		},
		"ShuttingDown": {
			reason: "a departure under way goes on",
			make: func(l *lab, name string) *v1alpha1.ScheduledMachine {
				sm := l.running(name, nil, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{DeletionSeconds: 3}})
				l.closeWindow(sm)
				l.waitPhase(sm, leaving, "")
				return sm
			},
		},
		"Inactive": {
			reason: "there is nothing to wait for",
			make: func(l *lab, name string) *v1alpha1.ScheduledMachine {
				sm := l.started(name, outside)
				l.waitPhase(sm, inactive, "")
				return sm
			},
		},
		"DisabledWithAMachine": {
			reason: "a Machine that stayed leaves with its ScheduledMachine",
			make: func(l *lab, name string) *v1alpha1.ScheduledMachine {
				sm := l.running(name, nil)
				l.disable(sm)
				l.waitPhase(sm, disabled, "")
				return sm
			},
		},
		"Terminated": {
			reason: "the kill switch has removed everything",
			make: func(l *lab, name string) *v1alpha1.ScheduledMachine {
				sm := l.started(name, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
				l.waitPhase(sm, terminated, "")
				return sm
			},
		},
		"Error": {
			reason: "a failing step must not hold the object",
			make: func(l *lab, name string) *v1alpha1.ScheduledMachine {
				sm := l.started(name, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "NotInstalledMachine" })
				l.waitPhase(sm, failed, "")
				return sm
			},
		},
		"PendingWithoutACluster": {
			reason: "an object whose Cluster never came can go",
			make: func(l *lab, name string) *v1alpha1.ScheduledMachine {
				sm := l.started(name, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.ClusterName = "nowhere" })
				l.waitPhase(sm, pending, "")
				return sm
			},
		},
		"New": {
			reason: "an object may be deleted before anybody looked at it",
			make:   func(l *lab, name string) *v1alpha1.ScheduledMachine { return l.started(name, nil) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := *l
			l.t = t
			sm := tc.make(&l, slug(name))
			l.delete(sm)
			if err := shared.Management.WaitGone(timeout(t, longPatience), sm); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			l.nothingLeft(sm)
		})
	}
}

func TestKillSwitchEndsTheGraceOfADeletion(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "delkill")
	sm := l.running("box", nil)
	pod, _ := l.runPinned(sm, "delkill-work")
	l.delete(sm)
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionFalse, "ShuttingDown", pod.Name)
	l.killSwitch(sm, true)
	l.waitGone(sm)
	l.nothingLeft(sm)
}

func TestOwnerEndsTheGraceOfADeletion(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "delowner")
	sm := l.running("box", nil)
	pod, _ := l.runPinned(sm, "delowner-work")
	infra, node := l.family(sm).infra, l.node(sm)
	l.delete(sm)
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionFalse, "ShuttingDown", pod.Name)
	l.askBack(node, "java")
	l.must(shared.Management.WaitGone(timeout(t, patience), infra))
	l.waitGone(sm)
	l.nothingLeft(sm)
}

func TestDeletionOfTheClusterTakesItsScheduledMachinesAlong(t *testing.T) {
	t.Parallel()
	l := newLab(t, "delcluster")
	running := l.running("running", nil)
	idle := l.started("idle", outside)
	off := l.running("off", nil)
	l.disable(off)
	l.waitPhase(idle, inactive, "")
	l.waitPhase(off, disabled, "")
	l.runPinned(running, "delcluster-work")
	l.delete(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}})
	mark := l.mark()
	l.waitGone(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}, running, idle, off)
	for _, sm := range []*v1alpha1.ScheduledMachine{running, idle, off} {
		l.nothingLeft(sm)
	}
	for _, w := range l.writes(mark) {
		if w.ObjectRef.Resource == "machines" && len(body(w)) > 0 && accepted(w) && w.ResponseStatus.Code == 201 {
			t.Errorf("nothing may be made for a Cluster that is going: %s", describe(w))
		}
	}
}

func TestForegroundDeletionDepartsGracefully(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "foreground")
	l.waitCollector()
	sm := l.running("box", nil)
	pod, pdb := l.runPinned(sm, "foreground-work")
	l.delete(sm, client.PropagationPolicy(metav1.DeletePropagationForeground))
	l.waitCondition(sm, v1alpha1.MachineReadyCondition, metav1.ConditionFalse, "DrainingNode", pod.Name)
	l.survives(pod)
	l.must(workload.Client.Delete(timeout(t, patience), pdb))
	l.waitGone(sm)
	l.nothingLeft(sm)
	l.wantEvicted(pod)
}

func TestDeletionOfTheNamespaceEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, "delns")
	sm := l.running("box", nil)
	idle := l.started("idle", outside)
	l.waitPhase(idle, inactive, "")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.Key.Namespace}}
	l.delete(ns)
	l.waitGone(sm, idle, ns)
}

func TestChildWithoutItsScheduledMachineIsLeftAlone(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "orphan")
	l.waitCollector()
	sm := l.running("box", nil)
	before := l.family(sm)
	// A person removes the finalizer and keeps the children.
	l.edit(sm, func() { sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	l.waitCondition(sm, clusterv1.PausedCondition, metav1.ConditionTrue, "")
	l.delete(sm, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	l.edit(sm, func() {
		sm.Finalizers = removed(sm.Finalizers, v1alpha1.ScheduledMachineFinalizer)
	})
	l.waitGone(sm)
	holds(t, 3*shortly, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	mark := l.mark()
	// Cluster API and the provider still change them; 5-Spot must not react.
	l.edit(before.machine, func() { before.machine.Labels["e2e"] = "touched" })
	l.edit(before.infra, func() { before.infra.Labels["e2e"] = "touched" })
	holds(t, 3*shortly, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	if writes := l.writes(mark); len(writes) > 0 {
		t.Errorf("children without their ScheduledMachine are nobody's to write:\n%s", describeAll(writes))
	}
	l.delete(before.machine)
	l.waitGone(before.machine)
}

// waitCollector waits until the garbage collector watches the kinds of a new management cluster, which it discovers
// every 30 s.
func (l *lab) waitCollector() {
	l.t.Helper()
	owner := l.started("owner", outside)
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.Key.Namespace, Name: "owned",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachine", Name: owner.Name, UID: owner.UID,
		}},
	}}
	l.create(owned)
	l.delete(owner)
	l.waitGone(owner, owned)
}

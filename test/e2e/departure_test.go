// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

func TestDepartureEvictsAndNamesWhoBlocksIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, "blocked")
	for _, pod := range specs.DepartureEvictsAndNamesWhoBlocksIt(l.specs()) {
		l.wantEvicted(pod)
	}
}

func TestGraceIsOverAndWhatIsLeftIsSkipped(t *testing.T) {
	t.Parallel()
	l := newLab(t, "grace")
	const grace = 8 * time.Second
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "8s" })
	pod, _ := l.runPinned(sm, "grace-work")
	infra := l.family(sm).infra
	begin := time.Now()
	l.closeWindow(sm)
	l.waitGone(infra)
	if took := time.Since(begin); took < grace-time.Second || took > 3*grace {
		t.Errorf("the infrastructure must go when the grace of %v is over, it took %v", grace, took)
	}
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
	for _, e := range l.podRequests(pod) {
		if e.ObjectRef.Subresource == "eviction" && accepted(e) {
			t.Errorf("the budget of the pod must hold to the end: %s", describe(e))
		}
	}
}

func TestDrainTimeoutIsClusterAPIs(t *testing.T) {
	t.Parallel()
	l := newLab(t, "draintime")
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.NodeDrainTimeout = "2m" })
	machine := l.family(sm).machine
	if got := machine.Spec.Deletion.NodeDrainTimeoutSeconds; got == nil || *got != 120 {
		t.Errorf("nodeDrainTimeout 2m must be 120 seconds on the Machine, got %v", got)
	}
	pod, _ := l.runPinned(sm, "draintime-work")
	l.edit(sm, func() { sm.Spec.NodeDrainTimeout = "4s" })
	l.waitFor(machine, func() error {
		if got := machine.Spec.Deletion.NodeDrainTimeoutSeconds; got == nil || *got != 4 {
			return fmt.Errorf("nodeDrainTimeoutSeconds is %v, not 4", got)
		}
		return nil
	})
	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
	if len(l.podRequests(pod)) == 0 {
		t.Error("the drain must have been tried before its time was over")
	}
}

func TestTemplateOfTheMachineIsKept(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "template")
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.MachineTemplate = v1alpha1.MachineTemplate{
			Labels: map[string]string{"team": "desk"}, Annotations: map[string]string{"example.com/note": "a"},
		}
	})
	machine := l.family(sm).machine
	if machine.Labels["team"] != "desk" || machine.Annotations["example.com/note"] != "a" {
		t.Errorf("labels and annotations of the template must be on the Machine: %v %v", machine.Labels, machine.Annotations)
	}
	l.edit(sm, func() {
		sm.Spec.MachineTemplate.Labels = map[string]string{"team": "lab"}
		sm.Spec.MachineTemplate.Annotations = nil
	})
	l.waitFor(machine, func() error {
		if _, ok := machine.Annotations["example.com/note"]; ok || machine.Labels["team"] != "lab" {
			return fmt.Errorf("an edit of the template must reach the Machine: %v %v", machine.Labels, machine.Annotations)
		}
		return nil
	})
	l.edit(machine, func() { delete(machine.Labels, "team") })
	l.waitFor(machine, func() error {
		if machine.Labels["team"] != "lab" {
			return errors.New("a label taken off by hand must come back")
		}
		return nil
	})
}

// wantEvicted checks that a pod was evicted, and that only its kubelet deleted it.
func (l *lab) wantEvicted(pod *corev1.Pod) {
	l.t.Helper()
	l.until(func(context.Context) error {
		evicted := false
		for _, e := range l.podRequests(pod) {
			switch {
			case e.ObjectRef.Subresource == "eviction" && accepted(e):
				evicted = true
			case e.Verb == "delete" && !evicted:
				l.t.Errorf("pod %s must be evicted, not deleted: %s by %s", pod.Name, describe(e), e.User.Username)
			}
		}
		if !evicted {
			return fmt.Errorf("pod %s was not evicted:\n%s", pod.Name, describeAll(l.podRequests(pod)))
		}
		return nil
	})
}

func TestNoGraceIsNoWaiting(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "nograce")
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "0s" })
	l.runPinned(sm, "nograce-work")
	infra := l.family(sm).infra
	begin := time.Now()
	l.closeWindow(sm)
	l.waitGone(infra)
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("without grace there is nothing to wait for, the infrastructure took %v", took)
	}
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
}

// TestAShorterGraceIsForLaterDepartures edits the timeout of a machine that is leaving, and then uses the kill switch.
func TestAShorterGraceIsForLaterDepartures(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "cutshort")
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "24h" })
	pod, _ := l.runPinned(sm, "cutshort-work")
	infra := l.family(sm).infra
	l.closeWindow(sm)
	l.waitCondition(sm, v1alpha1.MachineReadyCondition, metav1.ConditionFalse, "DrainingNode", pod.Name)
	l.edit(sm, func() { sm.Spec.GracefulShutdownTimeout = "1s" })
	holds(t, 2*shortly, func(ctx context.Context) error { return unchanged(ctx, infra) })
	// Cluster API may reconcile the Machine only 20 s later. The kill switch does not wait for that.
	begin := time.Now()
	l.killSwitch(sm, true)
	l.waitGone(infra)
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("the kill switch deletes the infrastructure at once, also during a drain; it took %v", took)
	}
}

func TestLongestNameWorks(t *testing.T) {
	t.Parallel()
	l := newLab(t, "longname")
	sm := l.scheduledMachine(strings.Repeat("n", 63-len("longname-")), infrav1.PlaneMachineSpec{})
	l.create(sm)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	if name := sm.Status.MachineRef.Name; len(name) > 63 || !strings.HasSuffix(name, "-machine") {
		t.Errorf("the name of the Machine must be shortened, got %s", name)
	}
	l.delete(sm)
	l.waitGone(sm)
	l.nothingLeft(sm)
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

func TestEditsOfTheTemplatesWaitForTheNextWindow(t *testing.T) {
	t.Parallel()
	l := newLab(t, "edit")
	sm := l.running("box", nil)
	before := l.family(sm)
	id := "0123456789abcdef0123456789abcdef"
	l.edit(sm, func() {
		sm.Spec.InfrastructureSpec.Spec.Raw = encode(t, infrav1.PlaneMachineSpec{MachineID: id})
		sm.Spec.BootstrapSpec.Spec.Raw = encode(t, bootstrapv1.PlaneConfigSpec{DelaySeconds: 1})
	})
	const says = "edits of spec.bootstrapSpec and spec.infrastructureSpec apply at the next window"
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionTrue, "MachineRunning", says)
	l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, "ReferencesValid", says)
	holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	if l.family(sm).infra.Spec.MachineID == id {
		t.Error("a live infrastructure machine must be left as it is")
	}

	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.openWindow(sm)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	after := l.family(sm)
	if after.infra.Spec.MachineID != id || after.bootstrap.Spec.DelaySeconds != 1 {
		t.Errorf("the next window must have the edited specs: %+v %+v", after.infra.Spec, after.bootstrap.Spec)
	}
	if got := l.node(sm).Status.NodeInfo.MachineID; got != id {
		t.Errorf("the Node must be made from the edited spec, its machine ID is %s", got)
	}
	l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, "ReferencesValid")
	if c := condition(sm, v1alpha1.ReadyCondition); c.Message != "Machine is healthy and running" {
		t.Errorf("the edit is applied; nothing is left to tell: %s", c.Message)
	}
}

func TestKindEditedWhileActiveOrphansNothing(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "editkind")
	l.installKind("OtherMachine", "othermachines")
	sm := l.running("box", nil)
	before := l.family(sm)
	l.edit(sm, func() { sm.Spec.InfrastructureSpec.Kind = "OtherMachine" })
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionTrue, "MachineRunning", "spec.infrastructureSpec apply at the next window")
	holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	if sm.Status.InfrastructureRef.Kind != "PlaneMachine" {
		t.Errorf("the status must refer to what exists: %+v", sm.Status.InfrastructureRef)
	}
	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
	l.openWindow(sm)
	l.waitFor(sm, func() error {
		if sm.Status.InfrastructureRef == nil || sm.Status.InfrastructureRef.Kind != "OtherMachine" {
			return errors.New("the next window must have the edited kind")
		}
		return nil
	})
	l.delete(sm)
	l.waitGone(sm)
	l.nothingLeft(sm)
	l.wantNone("othermachines")
}

func TestKindEditedBetweenFailureAndRetryOrphansNothing(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "retrykind")
	l.installKind("RetryMachine", "retrymachines")
	// The infrastructure is created, and then the Machine is rejected.
	lift := l.refuse(clusterv1.GroupVersion.Group, "machines", "not today", admissionv1.Create)
	sm := l.started("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "RetryMachine" })
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionFalse, "ReconcileFailed", "not today")
	l.edit(sm, func() { sm.Spec.InfrastructureSpec.Kind = "PlaneMachine" })
	l.waitPhase(sm, failed, metav1.ConditionFalse) // No attempt with the first kind is in progress.
	lift()
	l.waitPhase(sm, active, metav1.ConditionTrue)
	l.wantRunning(sm)
	l.until(func(ctx context.Context) error {
		out, err := shared.Management.Kubectl(ctx, "get", "retrymachines", "-n", l.Key.Namespace, "-o", "name")
		if err == nil && out != "" {
			return errors.New("what was made of the first kind is an orphan: " + out)
		}
		return err
	})
}

func TestSpecEditedBeforeTheMachineExistsIsTheOneUsed(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "retryspec")
	lift := l.refuse(clusterv1.GroupVersion.Group, "machines", "not today", admissionv1.Create)
	sm := l.started("box", nil)
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	infra := familyOf(sm).infra
	l.must(shared.Management.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(infra), infra))
	id := "fedcba9876543210fedcba9876543210"
	l.edit(sm, func() { sm.Spec.InfrastructureSpec.Spec.Raw = encode(t, infrav1.PlaneMachineSpec{MachineID: id}) })
	l.waitPhase(sm, failed, metav1.ConditionFalse) // No attempt with the first spec is in progress.
	lift()
	l.waitPhase(sm, active, metav1.ConditionTrue)
	if got := l.family(sm).infra.Spec.MachineID; got != id {
		t.Errorf("no Machine used the first spec, so the edited one must be used; got machine ID %q", got)
	}
}

// wantNone checks that a kind has no objects in the lab's namespace.
func (l *lab) wantNone(plural string) {
	l.t.Helper()
	out, err := shared.Management.Kubectl(timeout(l.t, patience), "get", plural, "-n", l.Key.Namespace, "-o", "name")
	l.must(err)
	if out != "" {
		l.t.Errorf("nothing may be left: %s", out)
	}
}

func encode(t *testing.T, spec any) []byte {
	t.Helper()
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

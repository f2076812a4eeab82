// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

func machineTemplate(name string) v1alpha1.TemplateReference {
	return v1alpha1.TemplateReference{APIVersion: infrav1.GroupVersion.String(), Kind: "PlaneMachineTemplate", Name: name}
}

// cloned makes a ScheduledMachine use templates in place of specs.
func cloned(sm *v1alpha1.ScheduledMachine, name string) {
	sm.Spec.BootstrapSpec, sm.Spec.InfrastructureSpec = v1alpha1.EmbeddedObject{}, v1alpha1.EmbeddedObject{}
	sm.Spec.BootstrapTemplateRef = v1alpha1.TemplateReference{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PlaneConfigTemplate", Name: name}
	sm.Spec.InfrastructureTemplateRef = machineTemplate(name)
}

// newTemplates creates both templates. Machines from them have that machine ID.
func (l *lab) newTemplates(name, machineID string) {
	l.t.Helper()
	meta := metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: name}
	l.create(&bootstrapv1.PlaneConfigTemplate{ObjectMeta: meta})
	l.create(&infrav1.PlaneMachineTemplate{ObjectMeta: meta, Spec: infrav1.PlaneMachineTemplateSpec{Template: infrav1.PlaneMachineTemplateResource{
		Metadata: infrav1.Metadata{Labels: map[string]string{"example.org/rack": name}},
		Spec:     infrav1.PlaneMachineSpec{MachineID: machineID},
	}}})
}

func TestMachinesAreClonedFromTemplates(t *testing.T) {
	t.Parallel()
	l := newLab(t, "cloned")
	const firstID, secondID = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	sm := l.started("box", func(sm *v1alpha1.ScheduledMachine) { cloned(sm, "first") })
	l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, "ReferencesInvalid",
		"spec.bootstrapTemplateRef: PlaneConfigTemplate first does not exist", "spec.infrastructureTemplateRef: PlaneMachineTemplate first does not exist")
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.nothingLeft(sm)

	l.newTemplates("first", firstID)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	l.wantRunning(sm)
	f := l.family(sm)
	if f.infra.Spec.MachineID != firstID || f.infra.Labels["example.org/rack"] != "first" ||
		f.infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation] != "first" {
		t.Errorf("the infrastructure machine must be a clone of its template: %+v %+v", f.infra.ObjectMeta, f.infra.Spec)
	}

	l.newTemplates("second", secondID)
	l.edit(sm, func() { cloned(sm, "second") })
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionTrue, "MachineRunning",
		"edits of spec.bootstrapTemplateRef and spec.infrastructureTemplateRef apply at the next window")
	holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, f.objects()...) })

	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
	l.openWindow(sm)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	if got := l.node(sm).Status.NodeInfo.MachineID; got != secondID {
		t.Errorf("the next window must have the other template's machine, its machine ID is %s", got)
	}
	l.delete(sm)
	l.waitGone(sm)
	l.nothingLeft(sm)
}

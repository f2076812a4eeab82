// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

func TestMissingClusterIsNamedAndWaitedFor(t *testing.T) {
	long(t)
	t.Parallel()
	l := newNamespace(t, "nocluster")
	sm := l.started("box", nil)
	l.waitPhase(sm, pending, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, "ReferencesInvalid", "spec.clusterName", "Cluster nocluster does not exist")
	l.wantNothing(sm)
	l.newCluster()
	l.waitPhase(sm, active, metav1.ConditionTrue)
	l.wantRunning(sm)
}

func TestUnknownKindIsNamedAndWaitedFor(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "nokind")
	sm := l.started("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "LateMachine" })
	h := l.follow(sm)
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, "ReferencesInvalid",
		"spec.infrastructureSpec", "LateMachine.infrastructure.cluster.x-k8s.io is not installed")
	l.wantWarning(sm, "-> Error")
	l.installKind("LateMachine", "latemachines")
	// No controller reconciles the kind: its creation is sufficient.
	l.waitPhase(sm, active, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, "ReferencesValid")
	// A Machine that Cluster API has not observed yet is gone before a condition can show it.
	l.until(func(ctx context.Context) error {
		machine := &clusterv1.Machine{}
		key := client.ObjectKey{Namespace: sm.Namespace, Name: sm.Status.MachineRef.Name}
		if err := shared.Management.Client.Get(ctx, key, machine); err != nil {
			return err
		}
		if !controllerutil.ContainsFinalizer(machine, clusterv1.MachineFinalizer) {
			return errors.New("Cluster API has not seen the Machine")
		}
		return nil
	})
	l.delete(sm)
	l.waitGone(sm)
	h.want(l, pending, failed, pending, active, leaving)
	out, err := shared.Management.Kubectl(timeout(t, patience), "get", "latemachines", "-n", l.Key.Namespace, "-o", "name")
	l.must(err)
	if out != "" {
		t.Errorf("nothing may be left: %s", out)
	}
}

func TestErrorEndsWithAnEdit(t *testing.T) {
	t.Parallel()
	l := newLab(t, "fixkind")
	sm := l.started("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "MisspeltMachine" })
	h := l.follow(sm)
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.edit(sm, func() { sm.Spec.InfrastructureSpec.Kind = "PlaneMachine" })
	l.waitPhase(sm, active, metav1.ConditionTrue)
	h.want(l, pending, failed, pending, active)
}

func TestErrorEndsWithTheWindow(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "errwindow")
	sm := l.started("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.BootstrapSpec.Kind = "MisspeltConfig" })
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
	l.openWindow(sm)
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.killSwitch(sm, true)
	l.waitPhase(sm, terminated, metav1.ConditionTrue)
}

func TestForeignObjectOfAChildsNameIsNeverTouched(t *testing.T) {
	t.Parallel()
	l := newLab(t, "foreign")
	cases := map[string]struct {
		object func(family) client.Object
		field  string
	}{
		"Machine": {func(f family) client.Object {
			f.machine.Spec.ClusterName = l.Key.Name
			f.machine.Spec.Bootstrap.DataSecretName = new("none")
			f.machine.Spec.InfrastructureRef.APIGroup, f.machine.Spec.InfrastructureRef.Kind = infrav1.GroupVersion.Group, "PlaneMachine"
			f.machine.Spec.InfrastructureRef.Name = "somebody-elses"
			return f.machine
		}, "spec.machineTemplate"},
		"Infrastructure": {func(f family) client.Object { return f.infra }, "spec.infrastructureSpec"},
		"Bootstrap":      {func(f family) client.Object { return f.bootstrap }, "spec.bootstrapSpec"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := *l
			l.t = t
			sm := l.scheduledMachine(slug(name), infrav1.PlaneMachineSpec{})
			foreign := tc.object(familyOf(sm))
			l.create(foreign)
			l.create(sm)
			l.waitPhase(sm, failed, metav1.ConditionFalse)
			l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, "ReferencesInvalid", tc.field, foreign.GetName(), "does not belong to this ScheduledMachine")
			l.killSwitch(sm, true)
			l.waitPhase(sm, terminated, metav1.ConditionTrue)
			l.killSwitch(sm, false)
			l.waitPhase(sm, failed, metav1.ConditionFalse)
			holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, foreign) })
			for _, w := range l.writes(0) {
				if w.ObjectRef.Name == foreign.GetName() && w.ObjectRef.Resource != "events" && accepted(w) {
					t.Errorf("somebody else's object must not be written: %s", describe(w))
				}
			}
			l.delete(foreign)
			l.waitPhase(sm, active, metav1.ConditionTrue)
			l.delete(sm)
			l.waitGone(sm)
			l.nothingLeft(sm)
		})
	}
}

func TestForeignObjectOutlivesTheScheduledMachine(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "foreigndel")
	sm := l.scheduledMachine("box", infrav1.PlaneMachineSpec{})
	foreign := familyOf(sm).infra
	l.create(foreign)
	l.create(sm)
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.delete(sm)
	l.waitGone(sm)
	holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, foreign) })
}

func TestRefusalByAPolicyIsShownAndGotOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, "policy")
	lift := l.refuse(infrav1.GroupVersion.Group, "planemachines", "the data centre is full", admissionv1.Create)
	sm := l.started("box", nil)
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionFalse, "ReconcileFailed", "the data centre is full")
	if c := condition(sm, v1alpha1.ReferencesValidCondition); c.Status != metav1.ConditionTrue {
		t.Errorf("the references are valid, only refused: %+v", c)
	}
	lift()
	l.waitPhase(sm, active, metav1.ConditionTrue)
}

func TestFailingProviderIsShownAndDepartureStillWorks(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "hang")
	sm := l.started("box", nil, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{Provision: infrav1.Hang}})
	l.waitPhase(sm, active, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionFalse, "MachineNotReady", "Machine is not ready")
	if sm.Status.NodeRef != nil {
		t.Errorf("there is no Node to refer to: %+v", sm.Status.NodeRef)
	}
	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
}

// refuse makes the API server reject requests in the lab's namespace, and returns when that is in effect, if it can be
// probed. lift ends it.
func (l *lab) refuse(group, resource, why string, operations ...admissionv1.OperationType) (lift func()) {
	l.t.Helper()
	lift = l.specs().Refuse(group, resource, why, operations...)
	if probe := l.probe(resource); probe != nil && slices.Contains(operations, admissionv1.Create) {
		l.until(func(ctx context.Context) error {
			if err := shared.Management.Client.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll); err == nil || !strings.Contains(err.Error(), why) {
				return fmt.Errorf("%s are not refused: %w", resource, err)
			}
			return nil
		})
	}
	return lift
}

// probe returns an object of a resource for a trial creation, nil if there is none.
func (l *lab) probe(resource string) client.Object {
	meta := metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: "probe"}
	switch resource {
	case "planemachines":
		return &infrav1.PlaneMachine{ObjectMeta: meta}
	case "machines":
		return &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
			ClusterName: l.Key.Name, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("probe")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "PlaneMachine", Name: "probe"},
		}}
	default:
		return nil
	}
}

// installKind installs an infrastructure kind without a controller.
func (l *lab) installKind(kind, plural string) {
	l.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:   plural + "." + infrav1.GroupVersion.Group,
			Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta1"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: infrav1.GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
	l.create(crd)
}

// wantWarning waits for a Warning event about sm that contains a text.
func (l *lab) wantWarning(sm *v1alpha1.ScheduledMachine, text string) {
	l.t.Helper()
	l.wantEvents(sm, "Warning", text)
}

// phaseIs returns an error if a ScheduledMachine is in none of phases.
func phaseIs(sm *v1alpha1.ScheduledMachine, phases ...v1alpha1.Phase) error {
	if !slices.Contains(phases, sm.Status.Phase) {
		return fmt.Errorf("its phase is %q, none of %v", sm.Status.Phase, phases)
	}
	return nil
}

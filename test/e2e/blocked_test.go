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
	lift := l.refusePlaneMachines("the data centre is full")
	sm := l.started("box", nil)
	l.waitPhase(sm, failed, metav1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionFalse, "ReconcileFailed", "the data centre is full")
	if c := condition(sm, v1alpha1.ReferencesValidCondition); c.Status != metav1.ConditionTrue {
		t.Errorf("the references are valid, only refused: %+v", c)
	}
	lift()
	l.waitPhase(sm, active, metav1.ConditionTrue)
}

// refusePlaneMachines makes the API server reject new PlaneMachines in the lab's namespace, and returns when that is in
// effect. lift ends it.
func (l *lab) refusePlaneMachines(why string) (lift func()) {
	l.t.Helper()
	lift = l.specs().Refuse(infrav1.GroupVersion.Group, "planemachines", why, admissionv1.Create)
	probe := metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: "probe"}
	l.until(func(ctx context.Context) error {
		err := shared.Management.Client.Create(ctx, &infrav1.PlaneMachine{ObjectMeta: probe}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("PlaneMachines are not refused: %w", err)
		}
		return nil
	})
	return lift
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

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// family has the names of a ScheduledMachine's children, and the objects as last read.
type family struct {
	machine   *clusterv1.Machine
	infra     *infrav1.PlaneMachine
	bootstrap *bootstrapv1.PlaneConfig
}

// familyOf returns the names that the API documents.
func familyOf(sm *v1alpha1.ScheduledMachine) family {
	named := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name + suffix}
	}
	return family{
		machine:   &clusterv1.Machine{ObjectMeta: named("-machine")},
		infra:     &infrav1.PlaneMachine{ObjectMeta: named("-infra")},
		bootstrap: &bootstrapv1.PlaneConfig{ObjectMeta: named("-bootstrap")},
	}
}

func (f family) objects() []client.Object {
	return []client.Object{f.machine, f.infra, f.bootstrap}
}

// family reads all children, which must exist.
func (l *lab) family(sm *v1alpha1.ScheduledMachine) family {
	l.t.Helper()
	f := familyOf(sm)
	for _, obj := range f.objects() {
		if err := shared.Management.Client.Get(timeout(l.t, patience), client.ObjectKeyFromObject(obj), obj); err != nil {
			l.t.Fatalf("every child must exist in phase %s: %v", sm.Status.Phase, err)
		}
	}
	return f
}

// left lists the remaining children of a ScheduledMachine, by name and by label, in the management cluster.
func (l *lab) left(ctx context.Context, sm *v1alpha1.ScheduledMachine) (left []string, err error) {
	seen := map[string]bool{}
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &infrav1.PlaneMachineList{}, &bootstrapv1.PlaneConfigList{}} {
		if err := shared.Management.Client.List(ctx, list, client.InNamespace(sm.Namespace)); err != nil {
			return nil, err
		}
		err := eachItem(list, func(obj client.Object) {
			if obj.GetLabels()[v1alpha1.ScheduledMachineLabel] == sm.Name {
				seen[fmt.Sprintf("%T %s", obj, obj.GetName())] = true
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for name := range seen {
		left = append(left, name)
	}
	return left, nil
}

// nothingLeft checks that no child exists, and no Node with the name of node.
func (l *lab) nothingLeft(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	left, err := l.left(timeout(l.t, patience), sm)
	l.must(err)
	if len(left) > 0 {
		l.t.Errorf("nothing of ScheduledMachine %s may be left in phase %q: %v", sm.Name, sm.Status.Phase, left)
	}
}

// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// Version is the Kubernetes version of the plane's control planes.
const Version = "v1.36.3"

// NewMachine creates a Machine, its PlaneConfig and its PlaneMachine, with the same name. mutate may be nil. It does
// not wait.
func (p *Plane) NewMachine(ctx context.Context, w *Workload, name string, mutate func(*clusterv1.Machine, *infrav1.PlaneMachine)) (*clusterv1.Machine, error) {
	meta := metav1.ObjectMeta{Namespace: w.Key.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: w.Key.Name}}
	infra := &infrav1.PlaneMachine{ObjectMeta: *meta.DeepCopy()}
	machine := &clusterv1.Machine{ObjectMeta: *meta.DeepCopy(), Spec: clusterv1.MachineSpec{
		ClusterName: w.Key.Name, Version: Version,
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PlaneConfig", Name: name,
		}},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "PlaneMachine", Name: name},
	}}
	if mutate != nil {
		mutate(machine, infra)
	}
	for _, obj := range []client.Object{infra, &bootstrapv1.PlaneConfig{ObjectMeta: meta}, machine} {
		if err := p.Management.Client.Create(ctx, obj); err != nil {
			return nil, fmt.Errorf("creating %T %s: %w", obj, name, err)
		}
	}
	return machine, nil
}

// WaitMachine returns when a Machine is in a phase. In the phase Running it has a Node.
func (p *Plane) WaitMachine(ctx context.Context, m *clusterv1.Machine, phase clusterv1.MachinePhase) error {
	return p.Management.Wait(ctx, m, func() error {
		if got := m.Status.GetTypedPhase(); got != phase {
			return fmt.Errorf("its phase is %s, not %s: %s", got, phase, why(m.Status.Conditions))
		}
		return nil
	})
}

// why lists the conditions that are not True.
func why(conditions []metav1.Condition) string {
	var out []string
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			out = append(out, fmt.Sprintf("%s=%s %s %q", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return strings.Join(out, "; ")
}

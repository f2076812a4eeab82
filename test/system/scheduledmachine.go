// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// ScheduledMachine returns a ScheduledMachine that is always in its window, with the kinds of the test provider. infra
// is its infrastructureSpec.
func ScheduledMachine(w *plane.Workload, name string, infra infrav1.PlaneMachineSpec) *v1alpha1.ScheduledMachine {
	raw, err := json.Marshal(infra)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return &v1alpha1.ScheduledMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Key.Namespace, Name: name},
		Spec: v1alpha1.ScheduledMachineSpec{
			ClusterName: w.Key.Name,
			Schedule:    v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-23"}},
			BootstrapSpec: v1alpha1.EmbeddedObject{
				APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PlaneConfig",
				Spec: runtime.RawExtension{Raw: []byte(`{}`)},
			},
			InfrastructureSpec: v1alpha1.EmbeddedObject{
				APIVersion: infrav1.GroupVersion.String(), Kind: "PlaneMachine",
				Spec: runtime.RawExtension{Raw: raw},
			},
		},
	}
}

// WaitPhase waits until sm is in phase and its condition Ready has the status ready. An empty ready accepts any status.
func (s *System) WaitPhase(ctx context.Context, sm *v1alpha1.ScheduledMachine, phase v1alpha1.Phase, ready metav1.ConditionStatus) error {
	return s.Management.Wait(ctx, sm, func() error {
		if sm.Status.Phase != phase {
			return fmt.Errorf("its phase is %q, not %s: %s", sm.Status.Phase, phase, sm.Status.Message)
		}
		for _, c := range sm.Status.Conditions {
			if ready != "" && c.Type == v1alpha1.ReadyCondition && c.Status != ready {
				return fmt.Errorf("its Ready is %s, not %s: %s: %s", c.Status, ready, c.Reason, c.Message)
			}
		}
		return nil
	})
}

// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestAMachineThatWaitsIsLetGoByAPerson applies the changes that docs/load-balancers.md describes while the machine
// waits.
func TestAMachineThatWaitsIsLetGoByAPerson(t *testing.T) {
	system.Long(t)
	t.Parallel()
	for name, change := range map[string]func(*expv1.LoadBalancer){
		"Ignore": func(lb *expv1.LoadBalancer) { lb.Spec.FailurePolicy = v1alpha1.FailurePolicyIgnore },
		"Sooner": func(lb *expv1.LoadBalancer) { lb.Spec.DeadlineSeconds = 30 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFarm(t, "hears-"+map[string]string{"Ignore": "a", "Sooner": "b"}[name], 1)
			lb := f.silentBalancer(func(lb *expv1.LoadBalancer) { lb.Spec.DeadlineSeconds = 3600 })
			machine := f.machine(0)
			f.SetSchedule(f.machines[0], specs.Closed())
			f.waitHeld(machine, "load balancer edge: ")
			f.waitEvent(lb.Name, expv1.CallFailedReason)
			f.must(f.Edit(lb, func() { change(lb) }))
			f.waitGone(machine)
		})
	}
}

// TestALoadBalancerLeavesTimeForTheDrain uses equal values for gracefulShutdownTimeout and deadlineSeconds, as the
// defaults are, but a tenth of them. The load balancer holds the drain until its deadline.
func TestALoadBalancerLeavesTimeForTheDrain(t *testing.T) {
	system.Long(t)
	t.Parallel()
	f := newFarm(t, "nodrain", 1)
	f.must(f.Edit(f.machines[0], func() { f.machines[0].Spec.GracefulShutdownTimeout = "30s" }))
	f.silentBalancer(func(lb *expv1.LoadBalancer) { lb.Spec.DeadlineSeconds = 30 })
	machine, begun := f.machine(0), time.Now()
	f.SetSchedule(f.machines[0], specs.Closed())
	drained := false
	for ; time.Since(begun) < patience; time.Sleep(50 * time.Millisecond) {
		now := &clusterv1.Machine{}
		if err := f.Management.Get(f.Context(), client.ObjectKeyFromObject(machine), now); err != nil || now.UID != machine.UID {
			break
		}
		drained = drained || now.Status.Deletion != nil && !now.Status.Deletion.NodeDrainStartTime.IsZero()
		machine = now
	}
	if !drained {
		t.Errorf("nobody drained its Node: %v, annotations %v", machine.Status.Deletion, machine.Annotations)
	}
}

// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
)

// TestServerThatFollowedItsNodeIsRestored: a machine gets another address while it is away. DNS changes the
// address of its server in place, and HAProxy keeps the drain.
func TestServerThatFollowedItsNodeIsRestored(t *testing.T) {
	for name, half := range map[string]bool{"AllAnswer": false, "OneProcessIsSilent": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				lb := w.balancer()
				lb.Spec.HAProxy = &expv1.HAProxyBalancer{Endpoints: []string{"tcp://192.0.2.1:9999"}}
				w.must(w.Update(w.Context(), lb))
				w.leave("ws-1", v1alpha1.WindowClosed)
				w.settle()
				w.goes()
				w.settle()
				w.edge.servers["ws-1"].address = "192.0.2.9"
				w.edge.half = half
				w.join("ws-1", 2)
				node, m := w.node("ws-1"), w.machine("ws-1")
				node.Status.Addresses[0].Address, m.Status.Addresses[0].Address = "192.0.2.9", "192.0.2.9"
				w.must(w.Status().Update(w.Context(), node))
				w.must(w.Status().Update(w.Context(), m))
				w.turns(5)
				w.edge.half = false
				w.settle()
				if w.edge.servers["ws-1"].drains || w.attachment("ws-1") != nil {
					t.Errorf("server %+v, attachment %+v", w.edge.servers["ws-1"], w.attachment("ws-1"))
				}
			})
		})
	}
}

// TestNodeWithoutAddressesLeavesNoRecord: a machine leaves before its Node has an address, so that no load
// balancer can identify it.
func TestNodeWithoutAddressesLeavesNoRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		lb := w.balancer()
		lb.Spec.HAProxy = &expv1.HAProxyBalancer{Endpoints: []string{"tcp://192.0.2.1:9999"}}
		w.must(w.Update(w.Context(), lb))
		node, m := w.node("ws-1"), w.machine("ws-1")
		node.Status.Addresses, m.Status.Addresses = nil, nil
		w.must(w.Status().Update(w.Context(), node))
		w.must(w.Status().Update(w.Context(), m))
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.turns(5)
		w.goes()
		w.turns(5)
		if a := w.attachment("ws-1"); a != nil {
			t.Errorf("on record is %+v, %+v", a.Spec, a.Status)
		}
	})
}

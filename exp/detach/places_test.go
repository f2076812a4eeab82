// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

// goes removes the first machine.
func (w *world) goes() {
	w.Helper()
	w.vanish("ws-1")
	w.must(w.Delete(w.Context(), w.node("ws-1")))
}

// TestServerOfAnotherHostIsUnchanged: an administrator changes the address of a server while its machine is
// away, and enables it.
func TestServerOfAnotherHostIsUnchanged(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.goes()
		w.settle()
		for range 2 {
			w.edge.servers["ws-1"] = &server{address: "192.0.2.77"}
			w.settle()
			if w.edge.servers["ws-1"].drains {
				t.Fatal("another host is drained")
			}
		}
		w.edge.servers["ws-1"].drains = true // The administrator's drain.
		w.join("ws-1", 2)
		w.settle()
		if !w.edge.servers["ws-1"].drains {
			t.Error("another host is put back")
		}
		if a := w.attachment("ws-1"); a != nil {
			t.Errorf("the place is on record: %+v", a.Spec)
		}
	})
}

// TestAReloadSwapsServers: the membership moves to the server that has the Node's address.
func TestAReloadSwapsServers(t *testing.T) {
	for name, again := range map[string]func(*world){"SameManager": func(*world) {}, "NewManager": (*world).restart} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edit("ws-1", cordon)
				w.settle()
				w.edge.servers["ws-1"], w.edge.servers["ws-2"] = &server{address: "192.0.2.2"}, &server{address: "192.0.2.1"}
				again(w)
				w.settle()
				if w.edge.servers["ws-1"].drains || !w.edge.servers["ws-2"].drains {
					t.Errorf("of the healthy Node %+v, of the cordoned one %+v", w.edge.servers["ws-1"], w.edge.servers["ws-2"])
				}
				w.edit("ws-1", uncordon)
				w.settle()
				if w.edge.servers["ws-2"].drains || w.attachment("ws-1") != nil {
					t.Errorf("server %+v, attachment %+v", w.edge.servers["ws-2"], w.attachment("ws-1"))
				}
			})
		})
	}
}

// TestNodeWithAnotherAddressLosesItsMembership: a machine comes back with another address.
func TestNodeWithAnotherAddressLosesItsMembership(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.goes()
		w.settle()
		w.join("ws-1", 2)
		node, m := w.node("ws-1"), w.machine("ws-1")
		node.Status.Addresses[0].Address, m.Status.Addresses[0].Address = "192.0.2.9", "192.0.2.9"
		w.must(w.Status().Update(w.Context(), node))
		w.must(w.Status().Update(w.Context(), m))
		w.settle()
		if !w.edge.servers["ws-1"].drains || w.attachment("ws-1") != nil {
			t.Errorf("server of its old address %+v, attachment %+v", w.edge.servers["ws-1"], w.attachment("ws-1"))
		}
	})
}

// TestAnAddressThatIsRegisteredAgain: an address is registered again while its machine is away, in a load balancer that
// keeps drains. It belongs to another machine.
func TestAnAddressThatIsRegisteredAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.goes()
		w.settle()
		w.edge.cloud = true
		w.edge.servers["ws-1"] = &server{address: "192.0.2.1"}
		w.settle()
		if w.edge.servers["ws-1"].drains {
			t.Error("the address of another host is deregistered")
		}
	})
}

// TestUnconfirmedDepartureKeepsItsRecord: a machine leaves before its load balancer answers.
func TestUnconfirmedDepartureKeepsItsRecord(t *testing.T) {
	for name, reason := range map[string]v1alpha1.DepartureReason{"Owner": v1alpha1.ReclaimedByOwner, "MissedDeadline": v1alpha1.WindowClosed} {
		for kind, cloud := range map[string]bool{"HAProxy": false, "Cloud": true} {
			t.Run(name+kind, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.edge.cloud, w.edge.down = cloud, true
					w.leave("ws-1", reason)
					w.turns(3)
					w.must(w.Delete(w.Context(), w.node("ws-1")))
					w.turns(3)
					w.vanish("ws-1")
					w.turns(3)
					w.restart()
					w.turns(3)
					if w.attachment("ws-1") == nil {
						t.Fatal("nothing says that the place is to be taken")
					}
					w.edge.down = false
					w.settle()
					if a := w.attachment("ws-1"); !w.edge.servers["ws-1"].drains || (a == nil) != cloud || a != nil && a.Spec.Trigger != "NodeGone" {
						t.Errorf("server %+v, attachment %+v", w.edge.servers["ws-1"], a)
					}
				})
			})
		}
	}
}

// TestDeletedUnreachableLoadBalancerHoldsNoRecord: a deleted LoadBalancer that does not answer holds no NodeAttachment,
// nor does a NodeAttachment that a person deletes.
func TestDeletedUnreachableLoadBalancerHoldsNoRecord(t *testing.T) {
	for name, end := range map[string]func(*world){
		"LoadBalancer":   func(w *world) { w.must(w.Delete(w.Context(), w.balancer())) },
		"NodeAttachment": func(w *world) { w.must(w.Delete(w.Context(), w.attachment("ws-1"))) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edge.down = true
				w.leave("ws-1", v1alpha1.ReclaimedByOwner)
				w.turns(3)
				w.goes()
				w.turns(3)
				end(w)
				w.turns(10)
				if a := w.attachment("ws-1"); a != nil {
					t.Errorf("it stays: %+v", a)
				}
			})
		})
	}
}

// TestMembershipOfTwoLoadBalancers: a membership stays drained when the LoadBalancer that drained it is deleted. The
// other LoadBalancer restores it.
func TestMembershipOfTwoLoadBalancers(t *testing.T) {
	endpoint := func(port string) *expv1.HAProxyBalancer {
		return &expv1.HAProxyBalancer{Endpoints: []string{"tcp://192.0.2.1:" + port}}
	}
	for name, c := range map[string]struct {
		haproxy *expv1.HAProxyBalancer
		late    bool // The other one is created when the first is deleted, as by a GitOps tool that renames it.
		down    bool // The other one does not answer.
		stays   bool
	}{
		"SamePool":       {haproxy: endpoint("9999"), stays: true},
		"Renamed":        {haproxy: endpoint("9999"), late: true, stays: true},
		"AnotherProcess": {haproxy: endpoint("9998")},
		"DoesNotAnswer":  {haproxy: endpoint("9999"), late: true, down: true},
		"AnotherKind":    {late: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				lb, other := w.balancer(), w.balancerObject("other")
				lb.Spec.HAProxy, other.Spec.HAProxy = endpoint("9999"), c.haproxy
				w.must(w.Update(w.Context(), lb))
				w.drivers["other"] = w.edge
				if !c.stays { // It has other servers.
					w.drivers["other"] = &edge{servers: map[string]*server{"ws-1": {address: "192.0.2.1"}}, down: c.down}
				}
				if !c.late {
					w.create(other)
				}
				w.edit("ws-1", cordon)
				w.settle()
				told := w.edge.writes
				w.must(w.Delete(w.Context(), w.balancer()))
				if c.late {
					w.create(other)
				}
				w.turns(20)
				if w.balancer() != nil {
					t.Fatal("the deleted LoadBalancer stays")
				}
				if got := w.edge.writes == told; got != c.stays {
					t.Errorf("the place stayed out: %t, want %t; record %+v", got, c.stays, w.attachment("ws-1").Spec.Memberships)
				}
				w.edit("ws-1", uncordon)
				w.turns(20)
				if w.edge.servers["ws-1"].drains {
					t.Error("the place is not put back")
				}
			})
		})
	}
}

// TestPodsOfANodeThatLeavesAreStopped: also if no hook of 5-Spot holds its machine, but not before the Node is
// detached.
func TestPodsOfANodeThatLeavesAreStopped(t *testing.T) {
	hooked := func(on bool) func(*world) {
		return func(w *world) {
			m := w.machine("ws-1")
			if m.Annotations = map[string]string{"a": "b"}; on {
				m.Annotations[v1alpha1.PreTerminateHookAnnotation] = ""
			}
			w.must(w.Update(w.Context(), m))
			w.leave("ws-1", v1alpha1.WindowClosed)
		}
	}
	edit := func(change func(*corev1.Node)) func(*world) {
		return func(w *world) { w.edit("ws-1", change) }
	}
	taint := func(key, value string) func(*world) {
		return edit(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Value: value}} })
	}
	for name, c := range map[string]struct {
		leaves func(*world)
		want   bool
	}{
		"Runs":             {func(*world) {}, false},
		"Cordoned":         {edit(cordon), true},
		"Autoscaler":       {taint(plan.AutoscalerTaint, "1"), true},
		"OurTaint":         {taint(plan.AutoscalerTaint, plan.OurTaintValue), false},
		"Karpenter":        {taint("karpenter.sh/disrupted", ""), true},
		"Dedicated":        {taint("dedicated", "gpu"), false},
		"Asked":            {edit(func(n *corev1.Node) { n.Annotations = map[string]string{expv1.NodeDetachAnnotation: "true"} }), false},
		"AskedAndCordoned": {edit(func(n *corev1.Node) { n.Annotations = map[string]string{expv1.NodeDetachAnnotation: "true"}; cordon(n) }), true},
		"MachineUnhooked":  {hooked(false), true},
		"MachineHooked":    {hooked(true), false},
		"Emergency":        {func(w *world) { w.leave("ws-1", v1alpha1.ReclaimedByOwner) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edge.servers["ws-1"].connections = 1
				c.leaves(w)
				w.turns(5)
				if len(w.stopper.stops) > 0 {
					t.Error("pods are stopped while the Node has connections")
				}
				w.edge.servers["ws-1"].connections = 0
				w.turns(5)
				if got := w.stopper.stops["lab/ws-1"] > 0; got != c.want || len(w.stopper.stops) > 1 {
					t.Errorf("stopped %v, want it to be: %t", w.stopper.stops, c.want)
				}
			})
		})
	}
	inWorld(t, func(w *world) {
		w.edge.servers["ws-1"].connections = 1
		w.edit("ws-1", cordon)
		w.turns(5)
		w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
		if w.turns(1); w.stopper.stops["lab/ws-1"] == 0 {
			t.Error("the deadline of the load balancer has passed")
		}
		w.must(w.Delete(w.Context(), w.node("ws-1")))
		if w.turns(1); len(w.stopper.stops) > 0 {
			t.Errorf("the Node is gone, and is remembered: %v", w.stopper.stops)
		}
		w.edit("ws-1", uncordon)
		if w.turns(1); len(w.stopper.stops) > 0 {
			t.Error("it stays")
		}
	})
	inWorld(t, func(w *world) {
		w.must(w.Delete(w.Context(), w.balancer()))
		w.settle()
		w.edit("ws-1", cordon)
		if w.turns(1); w.stopper.stops["lab/ws-1"] == 0 {
			t.Error("there is no load balancer to wait for")
		}
	})
}

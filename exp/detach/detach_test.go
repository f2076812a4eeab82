// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

func cordon(n *corev1.Node)   { n.Spec.Unschedulable = true }
func uncordon(n *corev1.Node) { n.Spec.Unschedulable = false }

func TestACordonedNodeIsTakenOutAndPutBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		if !w.edge.servers["ws-1"].drains || w.edge.servers["ws-2"].drains || w.edge.writes != 1 {
			t.Errorf("servers %+v %+v, told %d times, want once", w.edge.servers["ws-1"], w.edge.servers["ws-2"], w.edge.writes)
		}
		w.edit("ws-1", uncordon)
		w.settle()
		if w.edge.servers["ws-1"].drains || w.attachment("ws-1") != nil || w.edge.writes != 2 {
			t.Errorf("server %+v, attachment %+v, told %d times", w.edge.servers["ws-1"], w.attachment("ws-1"), w.edge.writes)
		}
		if n := w.node("ws-1"); n.Annotations["node-detacher.variant.run/detaching"] != "false" {
			t.Errorf("annotations %v", n.Annotations)
		}
	})
}

// TestAMachineThatLeavesIsCordonedByUs: 5-Spot cordons the Node, which then stays.
func TestAMachineThatLeavesIsCordonedByUs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		if !w.node("ws-1").Spec.Unschedulable || !w.edge.servers["ws-1"].drains {
			t.Errorf("Node %+v, server %+v", w.node("ws-1").Spec, w.edge.servers["ws-1"])
		}
		w.vanish("ws-1")
		w.settle()
		if w.node("ws-1").Spec.Unschedulable || w.edge.servers["ws-1"].drains || w.attachment("ws-1") != nil {
			t.Errorf("Node %+v, server %+v, attachment %+v", w.node("ws-1").Spec, w.edge.servers["ws-1"], w.attachment("ws-1"))
		}
	})
}

// TestOurCordonOfALeavingMachineStays checks that a Machine cache that lags behind the departure record does not undo
// the cordon of the eviction step.
func TestOurCordonOfALeavingMachineStays(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", "")
		remote, err := w.nodes.Actuate.Remote(w.Context(), w.nodes.ClusterCache, cluster)
		w.must(err)
		node := w.node("ws-1")
		before := node.DeepCopy()
		node.Spec.Unschedulable = true
		w.must(remote.For(actuate.OnNode(w.machine("ws-1"), "MovePods", w.clock.Now())).PatchLocked(w.Context(), node, before))
		w.settle()
		if !w.node("ws-1").Spec.Unschedulable {
			t.Error("the Node of a Machine that is being deleted is uncordoned")
		}
		w.vanish("ws-1")
		if w.settle(); w.node("ws-1").Spec.Unschedulable {
			t.Error("the Node stays without its Machine, and is still cordoned")
		}
	})
}

// TestMembershipIsRestoredWhenNodeReturns: a machine leaves, and comes back the next day.
func TestMembershipIsRestoredWhenNodeReturns(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.vanish("ws-1")
		w.must(w.Delete(w.Context(), w.node("ws-1")))
		w.settle()
		if a := w.attachment("ws-1"); a == nil || a.Spec.Trigger != "NodeGone" || len(a.Spec.Memberships) != 1 || !w.edge.servers["ws-1"].drains {
			t.Errorf("attachment %+v, server %+v", a, w.edge.servers["ws-1"])
		}
		if got := conditions.GetReason(w.attachment("ws-1"), expv1.NodeBeingDetachedCondition); got != expv1.DetachedReason {
			t.Errorf("%s for a Node that is gone", got)
		}
		w.edge.servers["ws-1"].drains = false // The load balancer has restarted.
		w.restart()
		w.settle()
		if !w.edge.servers["ws-1"].drains {
			t.Error("connections go to a machine that is not there")
		}
		w.join("ws-1", 2)
		w.settle()
		if w.edge.servers["ws-1"].drains || w.attachment("ws-1") != nil {
			t.Errorf("attachment %+v, server %+v", w.attachment("ws-1"), w.edge.servers["ws-1"])
		}
	})
}

// TestMembershipFollowsAddressOfRenamedNode: a machine comes back under another name.
func TestMembershipFollowsAddressOfRenamedNode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.vanish("ws-1")
		w.must(w.Delete(w.Context(), w.node("ws-1")))
		w.settle()
		other := w.nodeObject("ws-1", 2)
		other.Name = "another"
		w.create(other)
		w.settle()
		if !w.edge.servers["ws-1"].drains {
			t.Error("a Node says of itself that it has the address, and gets the place")
		}
		w.join("ws-1", 3)
		w.must(w.Delete(w.Context(), w.node("ws-1")))
		w.rename("ws-1", "another")
		w.settle()
		if w.edge.servers["ws-1"].drains || w.attachment("ws-1") != nil {
			t.Errorf("attachment %+v, server %+v", w.attachment("ws-1"), w.edge.servers["ws-1"])
		}
	})
}

// TestNewMembershipIsDiscovered: a detached Node gets a membership in another pool before its machine leaves, and
// another address after that.
func TestNewMembershipIsDiscovered(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		w.edge.servers["late"] = &server{address: "192.0.2.1"}
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		if !w.edge.servers["late"].drains {
			t.Error("it leaves with a place")
		}
		w.edge.servers["later"] = &server{address: "192.0.2.100"}
		m := w.machine("ws-1")
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "192.0.2.100"})
		w.must(w.Status().Update(w.Context(), m))
		w.settle()
		if !w.edge.servers["later"].drains {
			t.Error("its new address is not looked for")
		}
	})
}

// TestDeferredMachineKeepsItsMembership deletes a Machine while the departure cap holds it.
func TestDeferredMachineKeepsItsMembership(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", "")
		w.settle()
		if len(w.writes) > 0 || w.edge.writes > 0 {
			t.Errorf("wrote %v, told %d times", w.writes, w.edge.writes)
		}
	})
}

// TestEmergencyIgnoresMinMembers: the last machine leaves in an emergency.
func TestEmergencyIgnoresMinMembers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edge.servers["ws-2"].blocked = true
		w.leave("ws-1", v1alpha1.ReclaimedByOwner)
		w.settle()
		if !w.edge.servers["ws-1"].drains {
			t.Error("the load balancer is not told")
		}
		for _, write := range w.writes {
			if write == "patch *v1.Node ws-1" {
				t.Errorf("nobody writes to its Node: %v", w.writes)
			}
		}
	})
}

// TestADrainComesBeforeARestore: a load balancer whose Restore hangs must not delay a machine that leaves.
func TestADrainComesBeforeARestore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		w.edit("ws-1", uncordon)
		w.leave("ws-2", v1alpha1.ReclaimedByOwner)
		w.edge.calls = nil
		w.settle()
		if diff := cmp.Diff([]string{"Drain", "Restore"}, w.edge.calls); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	})
}

// TestNoCallWhileActuationIsPaused cordons a Node while actuation is paused.
func TestNoCallWhileActuationIsPaused(t *testing.T) {
	for name, gate := range map[string]*actuate.Gate{"Paused": {Paused: true}, "DryRun": {DryRun: true}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edit("ws-1", cordon)
				w.settle()
				w.gate = gate
				w.restart()
				before, told := len(w.writes), w.edge.writes
				w.edit("ws-1", uncordon)
				w.edit("ws-2", cordon)
				w.edge.servers["ws-1"].drains = false // It has restarted, too.
				for range 5 {
					w.turn()
				}
				if len(w.writes) != before || w.edge.writes != told {
					t.Errorf("wrote %v, told %d times", w.writes[before:], w.edge.writes-told)
				}
				logged := ""
				log := funcr.New(func(_, line string) { logged += line + "\n" }, funcr.Options{})
				_, err := w.lbs.Reconcile(ctrl.LoggerInto(w.Context(), log), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: "edge"}})
				if w.allow(err); !strings.Contains(logged, "calling LoadBalancer") || strings.Contains(logged, "deleting") {
					t.Errorf("the log does not name the suppressed call:\n%s", logged)
				}
			})
		})
	}
}

// TestAPausedClusterIsLeftAlone cordons a Node of a paused Cluster.
func TestAPausedClusterIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
		w.edit("ws-1", cordon)
		w.settle()
		if len(w.writes) > 0 || w.edge.reads+w.edge.writes > 0 {
			t.Errorf("wrote %v, asked %d, told %d", w.writes, w.edge.reads, w.edge.writes)
		}
	})
}

// TestDeletedLoadBalancerRestoresAll deletes the LoadBalancer while a Node is detached.
func TestDeletedLoadBalancerRestoresAll(t *testing.T) {
	for name, before := range map[string]func(*world){
		"Cordoned": func(*world) {},
		"Gone": func(w *world) {
			w.vanish("ws-1")
			w.must(w.Delete(w.Context(), w.node("ws-1")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edit("ws-1", cordon)
				w.settle()
				before(w)
				w.settle()
				lb := w.balancer()
				w.must(w.Delete(w.Context(), lb))
				w.edge.down = true
				for range 3 {
					w.turn()
				}
				if w.balancer() == nil {
					t.Fatal("it goes although a place is taken")
				}
				w.edge.down = false
				w.settle()
				if w.balancer() != nil || w.edge.servers["ws-1"].drains {
					t.Errorf("LoadBalancer %+v, server %+v", w.balancer(), w.edge.servers["ws-1"])
				}
				if a := w.attachment("ws-1"); a != nil && len(a.Spec.Memberships) == 0 && len(a.Finalizers) > 0 {
					t.Errorf("NodeAttachment %s has no membership and finalizers %v", a.Name, a.Finalizers)
				}
			})
		})
	}
}

// TestLoadBalancerWithoutMembershipIsDeletedAtOnce deletes a LoadBalancer in which a detached Node was no member.
// Without a membership no later event would enqueue it.
func TestLoadBalancerWithoutMembershipIsDeletedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		delete(w.edge.servers, "ws-1")
		w.edit("ws-1", cordon)
		w.settle()
		lb := w.balancer()
		w.must(w.Delete(w.Context(), lb))
		w.edge.down = true
		_, err := w.lbs.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(lb)})
		w.must(err)
		if lb := w.balancer(); lb != nil {
			t.Errorf("it stays: finalizers %v", lb.Finalizers)
		}
	})
}

// TestDeletedClusterIsNotHeld deletes the Cluster while the load balancer does not answer.
func TestDeletedClusterIsNotHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		w.edge.down = true
		lb, a := w.balancer(), w.attachment("ws-1")
		w.cluster(func(c *clusterv1.Cluster) { c.Finalizers = []string{"test/keep"} })
		w.must(w.Delete(w.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}))
		w.must(w.Delete(w.Context(), lb))
		w.must(w.Delete(w.Context(), a))
		w.settle()
		if w.balancer() != nil || w.attachment("ws-1") != nil {
			t.Errorf("LoadBalancer %+v, NodeAttachment %+v", w.balancer(), w.attachment("ws-1"))
		}
	})
}

// TestControlPlaneNodesStay: control plane Nodes stay unless controlPlane is true.
func TestControlPlaneNodesStay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", func(n *corev1.Node) {
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
			n.Spec.Unschedulable = true
		})
		w.settle()
		if w.edge.reads+w.edge.writes > 0 {
			t.Errorf("asked %d, told %d", w.edge.reads, w.edge.writes)
		}
		lb := w.balancer()
		lb.Spec.ControlPlane, lb.Generation = true, 2
		w.must(w.Update(w.Context(), lb))
		w.settle()
		if !w.edge.servers["ws-1"].drains {
			t.Error("somebody asks for it")
		}
	})
}

// TestUnreachableLoadBalancerIsReported: condition, Event and message show a silent load balancer. Connections that it
// reported before still count.
func TestUnreachableLoadBalancerIsReported(t *testing.T) {
	for name, fail := range map[string]func(*edge){
		"Silent":     func(e *edge) { e.down = true },
		"NoState":    func(e *edge) { e.down, e.lists = true, true },
		"HalfSilent": func(e *edge) { e.half, e.servers["ws-1"].connections = true, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edge.servers["ws-1"].connections = 3
				w.edit("ws-1", cordon)
				w.turns(4)
				if c := conditions.Get(w.attachment("ws-1"), expv1.NodeBeingDetachedCondition); c == nil || c.Reason != expv1.DetachingReason || c.Message != "edge: web/ws-1 has 3 connections" {
					t.Errorf("got %+v", c)
				}
				fail(w.edge)
				w.turn()
				if c := conditions.Get(w.attachment("ws-1"), expv1.NodeBeingDetachedCondition); c.Reason != expv1.MembershipUnknownReason || c.Message != "edge: connection refused" {
					t.Errorf("got %+v", c)
				}
				if c := conditions.Get(w.balancer(), expv1.ReachableCondition); c.Status != metav1.ConditionFalse || c.Message != "connection refused" {
					t.Errorf("got %+v", c)
				}
				if m := w.attachment("ws-1").Status.LoadBalancers[0].Members[0]; m.State != "Draining" || ptr.Deref(m.Connections, 0) != 3 {
					t.Errorf("its connections are forgotten: %+v", m)
				}
				w.spec(func(s *expv1.LoadBalancerSpec) { s.FailurePolicy = v1alpha1.FailurePolicyIgnore })
				if v := w.verdict(); !v.Holds {
					t.Errorf("connections that were reported are not waited for: %+v", v)
				}
				w.edge.down, w.edge.half, w.edge.servers["ws-1"].connections = false, false, 0
				w.settle()
				if c := conditions.Get(w.attachment("ws-1"), expv1.NodeBeingDetachedCondition); c.Status != metav1.ConditionTrue || c.Reason != expv1.DetachedReason {
					t.Errorf("got %+v", c)
				}
				if c := conditions.Get(w.balancer(), expv1.ReachableCondition); c.Status != metav1.ConditionTrue {
					t.Errorf("got %+v", c)
				}
			})
		})
	}
}

// TestFailureOfOneNodeAffectsNoOther: the load balancer, or the API server, rejects calls for ws-1.
func TestFailureOfOneNodeAffectsNoOther(t *testing.T) {
	for name, tc := range map[string]struct {
		fails func(*world)
		says  string
	}{
		"Nameless": {func(w *world) {
			m := w.machine("ws-1")
			m.Status.Addresses = nil
			w.must(w.Status().Update(w.Context(), m))
			n := w.node("ws-1")
			n.Status.Addresses = nil
			w.must(w.Status().Update(w.Context(), n))
		}, "edge: node ws-1 has no address: it has nothing that a member of the load balancer could match"},
		"Refused":   {func(w *world) { w.edge.servers["ws-1"].refuses = true }, "edge: permission denied"},
		"Unwritten": {func(w *world) { w.refuses = detach.AttachmentName("lab", "ws-1") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edge.servers["ws-2"].connections = 3
				w.edge.servers["other"] = &server{address: "192.0.2.9"}
				w.edge.servers["another"] = &server{address: "192.0.2.10"}
				tc.fails(w)
				w.edit("ws-1", cordon)
				w.edit("ws-2", cordon)
				for range 6 {
					w.turn()
				}
				if !w.edge.servers["ws-2"].drains {
					t.Error("ws-2 is not taken out")
				}
				if c := conditions.Get(w.attachment("ws-2"), expv1.NodeBeingDetachedCondition); c == nil || c.Reason != expv1.DetachingReason || c.Message != "edge: web/ws-2 has 3 connections" {
					t.Errorf("of ws-2 it says %+v", c)
				}
				if tc.says != "" {
					if c := conditions.Get(w.attachment("ws-1"), expv1.NodeBeingDetachedCondition); c == nil || c.Reason != expv1.MembershipUnknownReason || c.Message != tc.says {
						t.Errorf("of ws-1 it says %+v", c)
					}
				}
				w.edit("ws-2", uncordon)
				for range 6 {
					w.turn()
				}
				if w.edge.servers["ws-2"].drains || w.attachment("ws-2") != nil {
					t.Errorf("ws-2 is not put back: %+v", w.attachment("ws-2"))
				}
			})
		})
	}
}

// TestANodeAttachmentCanBeDeleted: people delete the NodeAttachment of a machine that never comes back.
func TestANodeAttachmentCanBeDeleted(t *testing.T) {
	for name, before := range map[string]func(*world){
		"PutBack": func(*world) {},
		"NoLoadBalancer": func(w *world) {
			w.must(w.Delete(w.Context(), w.balancer()))
			lb := w.balancer()
			lb.Finalizers = nil
			w.must(w.Update(w.Context(), lb))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edit("ws-1", cordon)
				w.settle()
				w.vanish("ws-1")
				w.must(w.Delete(w.Context(), w.node("ws-1")))
				w.settle()
				before(w)
				w.must(w.Delete(w.Context(), w.attachment("ws-1")))
				w.settle()
				if a := w.attachment("ws-1"); a != nil {
					t.Errorf("it is left: %+v", a.Spec)
				}
				if w.balancer() != nil && w.edge.servers["ws-1"].drains {
					t.Error("its place is lost")
				}
			})
		})
	}
}

// TestPartlyReachableLoadBalancerIsReported: one of two processes does not answer. The other one drains the Node. The
// record stays until both report it as restored.
func TestPartlyReachableLoadBalancerIsReported(t *testing.T) {
	inWorld(t, func(w *world) {
		turns := func() {
			for range 4 {
				w.turn()
			}
		}
		w.edge.half = true
		w.edit("ws-1", cordon)
		turns()
		if c := conditions.Get(w.attachment("ws-1"), expv1.NodeBeingDetachedCondition); !w.edge.servers["ws-1"].drains || c.Reason != expv1.MembershipUnknownReason || c.Message != "edge: connection refused" {
			t.Errorf("drains %v, condition %+v", w.edge.servers["ws-1"].drains, c)
		}
		w.edit("ws-1", uncordon)
		turns()
		if a := w.attachment("ws-1"); w.edge.servers["ws-1"].drains || a == nil || len(a.Spec.Memberships) != 1 {
			t.Errorf("drains %v, attachment %+v", w.edge.servers["ws-1"].drains, a)
		}
		w.edge.half = false
		w.settle()
		if a := w.attachment("ws-1"); a != nil {
			t.Errorf("it is left: %+v", a)
		}
	})
}

// TestNodeOfTwoMachinesIsUnchanged: a second Machine refers to the Node during a departure.
func TestNodeOfTwoMachinesIsUnchanged(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.rename("ws-2", "ws-1")
		w.settle()
		if !w.node("ws-1").Spec.Unschedulable || !w.edge.servers["ws-1"].drains {
			t.Errorf("Node %+v, server %+v", w.node("ws-1").Spec, w.edge.servers["ws-1"])
		}
	})
}

// TestDetachedMeansAllLoadBalancers: people wait for the reason Detached before they drain the Node.
func TestDetachedMeansAllLoadBalancers(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := newEdge()
		slow.servers["ws-1"], slow.servers["ws-2"], slow.down = &server{address: "192.0.2.1"}, &server{address: "192.0.2.2"}, true
		w.drivers["slow"] = slow
		w.create(w.balancerObject("slow"))
		w.edit("ws-1", cordon)
		reconcile := func(name string) string {
			for range 3 {
				_, err := w.nodes.Reconcile(w.Context(), detach.RequestFor(cluster, "ws-1"))
				w.allow(err)
				_, err = w.lbs.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: name}})
				w.allow(err)
			}
			return conditions.GetReason(w.attachment("ws-1"), expv1.NodeBeingDetachedCondition)
		}
		if got := reconcile("edge"); got != expv1.DetachingReason {
			t.Errorf("%s before the second load balancer has reported", got)
		}
		slow.down = false
		if got := reconcile("slow"); got != expv1.DetachedReason {
			t.Errorf("%s after both have reported", got)
		}
	})
}

// TestNodeIsCordonedAfterAFailedPatch: patches of the Node fail at first, and its load balancer is called all the same.
func TestNodeIsCordonedAfterAFailedPatch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuses = "ws-1"
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.turns(10)
		if n := w.node("ws-1"); n.Spec.Unschedulable || w.attachment("ws-1") == nil || !w.edge.servers["ws-1"].drains {
			t.Fatalf("%+v, server %+v, want a record and a drain of a Node that is not cordoned", n.Spec, w.edge.servers["ws-1"])
		}
		w.refuses = ""
		w.settle()
		if n := w.node("ws-1"); !n.Spec.Unschedulable || n.Annotations[expv1.NodeDetachingAnnotation] != "true" {
			t.Errorf("%+v, %v, want a cordon and the annotation", n.Spec, n.Annotations)
		}
		w.edit("ws-1", uncordon)
		w.settle()
		if w.node("ws-1").Spec.Unschedulable {
			t.Error("a person cannot undo the cordon")
		}
	})
}

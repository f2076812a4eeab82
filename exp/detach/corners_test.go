// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// verdict returns the step's verdict about the first Machine, which started to leave a second ago.
func (w *world) verdict() leaving.Verdict {
	w.Helper()
	v, err := (&detach.Step{Reader: w}).Check(w.Context(), leaving.Departing{
		Machine: w.machine("ws-1"), Node: "ws-1", Phase: hooksv1.BeforeDrain, Began: w.clock.Now().Add(-time.Second),
	}, w.clock.Now())
	w.must(err)
	return v
}

// turns runs the reconcilers n times, within seconds.
func (w *world) turns(n int) {
	w.Helper()
	for range n {
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		w.turn()
	}
}

// spec changes the LoadBalancer's spec as a person does.
func (w *world) spec(change func(*expv1.LoadBalancerSpec)) {
	w.Helper()
	lb := w.balancer()
	change(&lb.Spec)
	lb.Generation++ // As an API server does.
	w.must(w.Update(w.Context(), lb))
}

// TestMissingNodeDoesNotHoldItsMachine: a person, or a cloud's controller, deletes the Node of a Machine that waits at
// the hook.
func TestMissingNodeDoesNotHoldItsMachine(t *testing.T) {
	for name, lasts := range map[string]bool{"ServerInAFile": true, "Instance": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.drive(instances{w.edge, lasts})
				w.leave("ws-1", v1alpha1.WindowClosed)
				w.settle()
				if v := w.verdict(); v.Holds {
					t.Fatalf("it is out: %+v", v)
				}
				w.must(w.Delete(w.Context(), w.node("ws-1")))
				w.settle()
				if v := w.verdict(); v.Holds {
					t.Errorf("it was out, its Node is gone, and it waits: %s", v.Note)
				}
			})
		})
	}
}

// TestNodeThatIsNotReadyStaysDetached: an owner takes a machine, and the deletion of its Node fails. The Node
// exists and is not Ready, and its Machine is gone.
func TestNodeThatIsNotReadyStaysDetached(t *testing.T) {
	for _, reason := range []v1alpha1.DepartureReason{v1alpha1.ReclaimedByOwner, v1alpha1.WindowClosed} {
		t.Run(string(reason), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.leave("ws-1", reason)
				w.settle()
				n := w.node("ws-1")
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
				w.must(w.Status().Update(w.Context(), n))
				w.settle()
				w.vanish("ws-1")
				w.settle()
				if !w.edge.servers["ws-1"].drains {
					t.Error("its owner's box gets connections; docs: put back when a Node with its name or address is Ready again")
				}
			})
		})
	}
}

// instances is a load balancer whose memberships last, or do not.
type instances struct {
	*edge
	lasts bool
}

func (i instances) Discover(ctx context.Context, node balancer.Node) ([]balancer.Membership, error) {
	found, err := i.edge.Discover(ctx, node)
	for j := range found {
		found[j].Persistent = i.lasts
	}
	return found, err
}

// drive replaces the driver, as if the LoadBalancer was of another kind.
func (w *world) drive(d balancer.Driver) { w.lbs.Drivers = only{d} }

// only returns the same Driver for all LoadBalancers.
type only struct{ balancer.Driver }

func (d only) For(*expv1.LoadBalancer) (balancer.Driver, error) { return d.Driver, nil }
func (only) Forget(types.NamespacedName)                        {}

// TestOtherInstanceWithSameNameGetsNoMembership: between two reconciles, another instance registers a Node with the
// same name. The old instance belongs to another Node, or is terminated.
func TestOtherInstanceWithSameNameGetsNoMembership(t *testing.T) {
	inWorld(t, func(w *world) {
		w.drive(instances{w.edge, false})
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.vanish("ws-1")
		w.must(w.Delete(w.Context(), w.node("ws-1")))
		other := w.nodeObject("ws-1", 2)
		other.Spec.ProviderID = "aws:///eu-central-1a/i-0000000000000002"
		other.Status.Addresses[0].Address = "192.0.2.77"
		w.create(other) // No reconcile ran in between.
		w.settle()
		if !w.edge.servers["ws-1"].drains {
			t.Error("the place of the instance that is gone is given back")
		}
	})
}

// TestRecreatedNodeKeepsItsMembership: a person deletes a cordoned Node, and its kubelet registers it again. Machine
// and instance are the same.
func TestRecreatedNodeKeepsItsMembership(t *testing.T) {
	inWorld(t, func(w *world) {
		w.drive(instances{w.edge, false})
		w.edit("ws-1", cordon)
		w.settle()
		w.must(w.Delete(w.Context(), w.node("ws-1")))
		w.settle()
		w.create(w.nodeObject("ws-1", 2))
		w.settle()
		if w.edge.servers["ws-1"].drains {
			t.Errorf("its place is lost for ever: attachment %v", w.attachment("ws-1"))
		}
	})
}

// TestControlPlaneLabelIsAddedLate: a Node gets its role after it was cordoned, as with kubeadm and others.
func TestControlPlaneLabelIsAddedLate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		w.edit("ws-1", func(n *corev1.Node) { n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""} })
		w.settle()
		if w.edge.servers["ws-1"].drains {
			t.Error("control plane Nodes stay unless controlPlane is true")
		}
	})
}

// TestWaitRestartsAfterReregistration: another party, such as the cloud's own controller, registers a member of a
// classic load balancer again while its machine waits. Its connections are not visible.
func TestWaitRestartsAfterReregistration(t *testing.T) {
	inWorld(t, func(w *world) {
		w.spec(func(s *expv1.LoadBalancerSpec) {
			s.ClassicELB = &expv1.ClassicELBBalancer{WaitSeconds: new(int32(120))}
		})
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.turns(5)
		if v := w.verdict(); !v.Holds || !strings.Contains(v.Note, "may have connections until") {
			t.Fatalf("it is let go at once: %+v", v)
		}
		w.clock.SetTime(w.clock.Now().Add(119 * time.Second))
		w.edge.servers["ws-1"].drains = false
		w.turns(3)
		if !w.edge.servers["ws-1"].drains {
			t.Fatal("it is not taken out again")
		}
		if v := w.verdict(); !v.Holds {
			t.Errorf("it was taken out 3 s ago, and goes: %+v", v)
		}
	})
}

// TestRecordSurvivesInterruptedDeletion: the manager stops between the two writes that delete a NodeAttachment, and the
// Node is cordoned again.
func TestRecordSurvivesInterruptedDeletion(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		w.edit("ws-1", uncordon)
		for range 20 {
			w.turn()
			a := w.attachment("ws-1")
			if a == nil {
				t.Fatal("it is gone before anybody could stop")
			}
			if len(a.Spec.Memberships) == 0 && a.Spec.Trigger == "" {
				w.fails = 1 // The finalizer is removed, and the deletion fails.
				w.turn()
				w.fails = -1
				break
			}
		}
		if a := w.attachment("ws-1"); a == nil || len(a.Finalizers) > 0 {
			t.Fatalf("not the state that is meant: %+v", a)
		}
		w.restart()
		w.edit("ws-1", cordon)
		w.settle()
		if a := w.attachment("ws-1"); len(a.Spec.Memberships) == 1 && len(a.Finalizers) == 0 {
			t.Error("a place is on record, and nothing keeps the record")
		}
	})
}

// throttled is a load balancer that limits the request rate.
type throttled struct{ *edge }

func (throttled) Discover(context.Context, balancer.Node) ([]balancer.Membership, error) {
	return nil, fmt.Errorf("DescribeTargetHealth: %w", balancer.ErrThrottled)
}

// TestFailurePolicyIgnoreIsLimited: failurePolicy Ignore applies to a load balancer that does not answer. It does not
// apply to throttling, nor to connections that another process of it has reported.
func TestFailurePolicyIgnoreIsLimited(t *testing.T) {
	t.Run("Throttled", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.spec(func(s *expv1.LoadBalancerSpec) { s.FailurePolicy = v1alpha1.FailurePolicyIgnore })
			w.drive(throttled{w.edge})
			w.leave("ws-1", v1alpha1.WindowClosed)
			w.turns(3)
			if v := w.verdict(); !v.Holds {
				t.Errorf("it goes although nobody was told: %+v", v)
			}
		})
	})
	t.Run("Connections", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.spec(func(s *expv1.LoadBalancerSpec) { s.FailurePolicy = v1alpha1.FailurePolicyIgnore })
			w.edge.half, w.edge.servers["ws-1"].connections = true, 30
			w.leave("ws-1", v1alpha1.WindowClosed)
			w.turns(5)
			if v := w.verdict(); !v.Holds {
				t.Errorf("the process that answers says 30 connections, and it goes: %+v", v)
			}
		})
	})
	t.Run("Floor", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.spec(func(s *expv1.LoadBalancerSpec) { s.FailurePolicy = v1alpha1.FailurePolicyIgnore })
			w.edge.half, w.edge.servers["ws-2"].blocked = true, true
			w.leave("ws-1", v1alpha1.WindowClosed)
			w.turns(5)
			if v := w.verdict(); !v.Holds {
				t.Errorf("it is the last member, serves, and goes: drains %v, %+v", w.edge.servers["ws-1"].drains, v)
			}
		})
	})
}

// TestRecordWithoutClusterLabelIsFound removes the Cluster's label from a NodeAttachment.
func TestRecordWithoutClusterLabelIsFound(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		a := w.attachment("ws-1")
		delete(a.Labels, clusterv1.ClusterNameLabel)
		w.must(w.Update(w.Context(), a))
		w.edit("ws-1", uncordon)
		w.settle()
		if w.edge.servers["ws-1"].drains {
			t.Error("its place is never given back")
		}
	})
}

// TestAttachmentNamesAreUnique: the name of a NodeAttachment belongs to one Node only.
func TestAttachmentNamesAreUnique(t *testing.T) {
	if a, b := detach.AttachmentName("eu", "west.box"), detach.AttachmentName("eu.west", "box"); a == b {
		t.Errorf("two Nodes have %s", a)
	}
}

// TestDisabledServerWithConnectionsHolds: another party disables a server that has connections.
func TestDisabledServerWithConnectionsHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.drive(maintained{w.edge})
		w.edge.servers["ws-1"].blocked, w.edge.servers["ws-1"].connections = true, 5
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.turns(4)
		if v := w.verdict(); !v.Holds {
			t.Errorf("docs: until it is a member without connections; it has 5, and goes: %+v", v)
		}
	})
}

// maintained reports the connections of a disabled server, as HAProxy does.
type maintained struct{ *edge }

func (d maintained) Status(ctx context.Context, places []balancer.Membership) ([]balancer.Status, error) {
	statuses, err := d.edge.Status(ctx, places)
	for i, p := range places {
		if s := d.servers[p.Member]; s != nil {
			statuses[i].Connections = new(s.connections)
		}
	}
	return statuses, err
}

// TestNodeBeingDeletedIsNotRestored: the deletion of a Node waits for a finalizer.
func TestNodeBeingDeletedIsNotRestored(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", func(n *corev1.Node) { n.Finalizers = []string{"karpenter.sh/termination"} })
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.must(w.Delete(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ws-1"}}))
		w.vanish("ws-1")
		w.settle()
		if n := w.node("ws-1"); n == nil || !w.edge.servers["ws-1"].drains {
			t.Errorf("a Node that is being deleted gets connections: %v", n)
		}
	})
}

// TestEmergencyUsesAddressesOfMachine: an owner takes a machine whose Node cannot be read. The workload cluster
// does not answer, or the Node was deleted before the first reconcile, as under a new leader. The Machine has the
// addresses, and the load balancer answers.
func TestEmergencyUsesAddressesOfMachine(t *testing.T) {
	for name, before := range map[string]func(*world){
		"Unreachable": func(w *world) { w.lost = true },
		"NodeGone":    func(w *world) { w.must(w.Delete(w.Context(), w.node("ws-1"))) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.turns(2)
				before(w)
				w.leave("ws-1", v1alpha1.ReclaimedByOwner)
				w.turns(5)
				if !w.edge.servers["ws-1"].drains {
					t.Error("docs: load balancers are told at the same time; its owner's box gets connections")
				}
			})
		})
	}
}

// services is a region with a target group for each of ten Services. Each Node is a target in all of them.
type services struct {
	*edge
	err error
}

func (d services) Discover(context.Context, balancer.Node) (found []balancer.Membership, err error) {
	for i := range 10 {
		group := fmt.Sprintf("arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/k8s-team-service%02d-0123456789/0123456789abcdef", i)
		if d.err != nil {
			err = errors.Join(err, fmt.Errorf("DescribeTargetHealth of %s: %w", group, d.err))
			continue
		}
		found = append(found, balancer.Membership{Pool: group, Member: "i-0123456789abcdef0", Port: 30080})
	}
	return found, err
}

func (services) Elsewhere(balancer.Node, balancer.Membership) bool { return false }

func (services) Status(_ context.Context, places []balancer.Membership) ([]balancer.Status, error) {
	statuses := make([]balancer.Status, len(places))
	for i := range statuses {
		statuses[i] = balancer.Status{State: balancer.Draining, Others: new(5)}
	}
	return statuses, nil
}

// TestAMessageFitsIntoTheAPI: a Node is in ten target groups. The API server rejects a status of a NodeAttachment with
// a message of more than 1024 characters. The Machine would then get no progress at all.
func TestAMessageFitsIntoTheAPI(t *testing.T) {
	for name, err := range map[string]error{"Draining": nil, "Refused": errors.New("AccessDenied: allow elasticloadbalancing:DescribeTargetHealth in the IAM policy of the manager")} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.drive(services{w.edge, err})
				w.leave("ws-1", v1alpha1.WindowClosed)
				w.turns(3)
				if p := w.attachment("ws-1").Status.LoadBalancers[0]; len(p.Message) > 1024 {
					t.Errorf("phase %s, message of %d characters: %.200s", p.Phase, len(p.Message), p.Message)
				}
			})
		})
	}
}

// throttledRetry is an API server with newer versions of all objects than the cache.
type throttledRetry struct{ client.Reader }

func (l throttledRetry) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := l.Reader.Get(ctx, key, obj, opts...)
	obj.SetResourceVersion("newer")
	return err
}

// TestRetriesBackOffWhileCacheIsStale: the cache of NodeAttachments is late for seconds, as when a thousand machines
// join at once. Each retry queries the load balancer.
func TestRetriesBackOffWhileCacheIsStale(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		w.edit("ws-1", uncordon)
		_, err := w.nodes.Reconcile(w.Context(), detach.RequestFor(cluster, "ws-1"))
		w.must(err)
		w.lbs.Live = throttledRetry{w}
		before, took := w.edge.reads, time.Duration(0)
		for range 20 {
			result, err := w.lbs.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.balancer())})
			if apierrors.IsConflict(err) {
				return // The queue backs off.
			}
			w.must(err)
			took += result.RequeueAfter
			w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
		}
		if asked := w.edge.reads - before; took < 5*time.Second {
			t.Errorf("in %s the load balancer is asked %d times, and so on without end", took, asked)
		}
	})
}

// TestReachableStaysWithoutCall: a load balancer that is down is queried about a Node, which then
// stays. After that, it is not queried any more.
func TestReachableStaysWithoutCall(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edge.down = true
		w.edit("ws-1", cordon)
		for range 5 {
			w.turn()
		}
		if c := conditions.Get(w.balancer(), expv1.ReachableCondition); c == nil || c.Status != metav1.ConditionFalse {
			t.Fatalf("before: %+v", c)
		}
		w.edit("ws-1", uncordon)
		asked := w.edge.reads
		w.settle()
		if c := conditions.Get(w.balancer(), expv1.ReachableCondition); c.Status == metav1.ConditionTrue && w.edge.reads == asked {
			t.Errorf("it is down, and nobody asked it again: %+v", c)
		}
	})
}

// TestDeletedLoadBalancerKeepsLeavingNodeDetached deletes the LoadBalancer while a machine with connections leaves.
func TestDeletedLoadBalancerKeepsLeavingNodeDetached(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edge.servers["ws-1"].connections = 8
		w.leave("ws-1", v1alpha1.WindowClosed)
		for range 5 {
			w.turn()
		}
		if !w.edge.servers["ws-1"].drains {
			t.Fatalf("server %+v", w.edge.servers["ws-1"])
		}
		w.must(w.Delete(w.Context(), w.balancer()))
		for range 5 {
			w.turn()
		}
		if m := w.machine("ws-1"); m != nil && !m.DeletionTimestamp.IsZero() && !w.edge.servers["ws-1"].drains {
			t.Error("new connections go to a machine that leaves and waits for nobody any more")
		}
	})
}

// TestNodeWithoutMembershipIsReported: HAProxy's configuration has other addresses of the machines than Cluster API.
// Nothing is drained, which looks like a detached Node.
func TestNodeWithoutMembershipIsReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edge.servers["ws-1"].address = "198.51.100.1"
		w.edit("ws-1", cordon)
		w.settle()
		a := w.attachment("ws-1")
		c := conditions.Get(a, expv1.NodeBeingDetachedCondition)
		if c == nil || c.Reason != expv1.DetachedReason {
			t.Fatalf("condition %+v", c)
		}
		if c.Message == "" {
			t.Errorf("nobody is told that edge has no member with one of %v: %+v", a.Spec.Addresses, c)
		}
	})
}

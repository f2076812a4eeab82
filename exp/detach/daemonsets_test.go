// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
)

// kubelet is the finalizer that keeps a pod until it has stopped.
const kubelet = "test/kubelet"

// names adds the DaemonSet that runs on all Nodes to a LoadBalancer.
func (w *world) names(lb *expv1.LoadBalancer, roll bool) {
	w.Helper()
	lb.Spec.DaemonSets = []expv1.ServingDaemonSet{{Namespace: "edge", Name: "ingress", Roll: roll}}
	lb.Generation++
	w.must(w.Update(w.Context(), lb))
}

// runPod creates the pod of the DaemonSet on a Node, as its controller does.
func (w *world) runPod(node, revision string, ready bool) {
	w.Helper()
	w.pods++
	name := fmt.Sprint("ingress-", w.pods)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "edge", Name: name, UID: types.UID(name), Finalizers: []string{kubelet},
		Labels:          map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ingress", UID: "ingress", Controller: new(true)}},
	}}
	pod.Spec.NodeName = node
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if ready {
		pod.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	w.create(pod)
}

// podOn reads the pod on a Node, nil if there is none.
func (w *world) podOn(node string) *corev1.Pod {
	w.Helper()
	list := &corev1.PodList{}
	w.must(w.List(w.Context(), list, client.InNamespace("edge")))
	i := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node })
	if i < 0 {
		return nil
	}
	return &list.Items[i]
}

// endPod deletes the pod on a Node. Until it stops, it takes connections.
func (w *world) endPod(node string) {
	w.Helper()
	if pod := w.podOn(node); pod != nil {
		w.must(w.Delete(w.Context(), pod))
	}
}

// stopPod removes a deleted pod from a Node.
func (w *world) stopPod(node string) {
	w.Helper()
	if pod := w.podOn(node); pod != nil && !pod.DeletionTimestamp.IsZero() {
		pod.Finalizers = nil
		w.must(w.Update(w.Context(), pod))
	}
}

// readyPod sets the Ready condition of the pod on a Node.
func (w *world) readyPod(node string, ready corev1.ConditionStatus) {
	w.Helper()
	if pod := w.podOn(node); pod != nil {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		w.must(w.Status().Update(w.Context(), pod))
	}
}

// inServed runs a test in a world with a second load balancer, which does not name the DaemonSet.
func inServed(t *testing.T, test func(*world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.names(w.balancer(), false)
		w.drivers["other"] = newEdge()
		w.create(w.balancerObject("other"))
		for _, node := range []string{"ws-1", "ws-2"} {
			w.drivers["other"].servers[node] = &server{address: "192.0.2." + node[3:]}
			w.runPod(node, "1", true)
		}
		test(w)
	})
}

// wantOut compares from which load balancers ws-1 is detached. The Node itself must be unchanged.
func (w *world) wantOut(when string, edge, other bool) {
	w.Helper()
	if got := w.edge.servers["ws-1"].drains; got != edge {
		w.Errorf("%s: it is out %v, want %v: %+v", when, got, edge, w.attachment("ws-1"))
	}
	if got := w.drivers["other"].servers["ws-1"].drains; got != other {
		w.Errorf("%s: at the load balancer that does not name the DaemonSet it is out %v, want %v", when, got, other)
	}
}

func TestANodeWhosePodsRunCostsNothing(t *testing.T) {
	inServed(t, func(w *world) {
		w.settle()
		if len(w.writes) > 0 || w.edge.reads+w.edge.writes > 0 {
			t.Errorf("wrote %v, asked %d times, told %d times", w.writes, w.edge.reads, w.edge.writes)
		}
	})
}

// TestANodeIsOutWhileItsPodIsReplaced replaces a deleted pod step by step.
func TestANodeIsOutWhileItsPodIsReplaced(t *testing.T) {
	inServed(t, func(w *world) {
		w.endPod("ws-1")
		w.settle()
		w.wantOut("It terminates", true, false)
		if n := w.node("ws-1"); n.Spec.Unschedulable || len(n.Annotations) > 0 {
			t.Errorf("the Node itself is changed: %+v, annotations %v", n.Spec, n.Annotations)
		}
		if a := w.attachment("ws-1"); a.Spec.Trigger != "DaemonSetPod edge/ingress" || !slices.Equal(a.Spec.LoadBalancers, []string{"edge"}) {
			t.Errorf("attachment %+v", a.Spec)
		}
		w.stopPod("ws-1")
		w.settle()
		w.wantOut("It is gone", true, false)
		w.restart()
		w.runPod("ws-1", "1", false)
		w.settle()
		w.wantOut("The next one starts", true, false)
		w.readyPod("ws-1", corev1.ConditionTrue)
		w.settle()
		w.wantOut("The next one is Ready", false, false)
		if a := w.attachment("ws-1"); a != nil {
			t.Errorf("it is left: %+v", a.Spec)
		}
	})
}

// TestUnreadyPodDetachesNoNode: a pod that is not Ready for a while, and a pod of another DaemonSet. Health
// checks handle these.
func TestUnreadyPodDetachesNoNode(t *testing.T) {
	for name, happens := range map[string]func(*world){
		"NotReady": func(w *world) { w.readyPod("ws-1", corev1.ConditionFalse) },
		"Another": func(w *world) {
			pod := w.podOn("ws-1")
			pod.OwnerReferences[0].Name = "another"
			w.must(w.Update(w.Context(), pod))
			w.endPod("ws-1")
		},
		"Surge": func(w *world) { // The next one is Ready before.
			w.endPod("ws-1")
			w.runPod("ws-1", "1", true)
		},
		"Unread": func(w *world) {
			w.blind = true
			w.endPod("ws-1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inServed(t, func(w *world) {
				happens(w)
				w.settle()
				w.wantOut(name, false, false)
				if len(w.writes) > 0 {
					t.Errorf("wrote %v", w.writes)
				}
			})
		})
	}
}

// TestUnreadPodsAreNotReady: the manager restarts, and its cache has no pods for a while.
func TestUnreadPodsAreNotReady(t *testing.T) {
	inServed(t, func(w *world) {
		w.endPod("ws-1")
		w.settle()
		w.blind = true
		w.restart()
		w.settle()
		w.wantOut("Nobody knows its pods", true, false)
	})
}

// TestOtherTriggersTakePrecedence: a Node is cordoned while its pod is replaced, and its machine leaves.
func TestOtherTriggersTakePrecedence(t *testing.T) {
	inServed(t, func(w *world) {
		w.endPod("ws-1")
		w.settle()
		w.edit("ws-1", cordon)
		w.settle()
		w.wantOut("It is cordoned", true, true)
		w.stopPod("ws-1")
		w.settle()
		w.edit("ws-1", uncordon)
		w.settle()
		w.wantOut("It is not cordoned any more, and has no pod", true, false)
		if n := w.node("ws-1"); n.Annotations["node-detacher.variant.run/detaching"] != "false" {
			t.Errorf("annotations %v", n.Annotations)
		}
		w.leave("ws-1", v1alpha1.WindowClosed)
		w.settle()
		w.wantOut("It leaves", true, true)
		if a := w.attachment("ws-1"); a.Spec.Trigger != "Departure" || len(a.Spec.LoadBalancers)+len(a.Spec.DaemonSets) > 0 || !w.node("ws-1").Spec.Unschedulable {
			t.Errorf("attachment %+v", a.Spec)
		}
		w.vanish("ws-1")
		w.runPod("ws-1", "1", true)
		w.settle()
		w.wantOut("It stays after all", false, false)
	})
}

// TestACordonAfterAnUnreadyPodGetsTheFullDeadline checks that an hour without one load balancer takes nothing from the
// deadline of another one.
func TestACordonAfterAnUnreadyPodGetsTheFullDeadline(t *testing.T) {
	inServed(t, func(w *world) {
		w.endPod("ws-1")
		w.settle()
		w.wantOut("Its pod ends", true, false)
		w.clock.SetTime(w.clock.Now().Add(time.Hour))
		w.drivers["other"].servers["ws-1"].connections = 1
		w.edit("ws-1", cordon)
		if w.turns(2); len(w.stopper.stops) > 0 {
			t.Error("pods are stopped while the other load balancer sends traffic")
		}
		w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
		if w.turns(1); w.stopper.stops["lab/ws-1"] == 0 {
			t.Error("the deadline of the other load balancer has passed")
		}
	})
}

// TestRemovedDaemonSetRestoresNode: the Node is attached again when the LoadBalancer stops to name the DaemonSet.
func TestRemovedDaemonSetRestoresNode(t *testing.T) {
	for name, change := range map[string]func(*world){
		"TakenOff": func(w *world) {
			lb := w.balancer()
			lb.Spec.DaemonSets = nil
			lb.Generation++
			w.must(w.Update(w.Context(), lb))
		},
		"Deleted": func(w *world) { w.must(w.Delete(w.Context(), w.balancer())) },
	} {
		t.Run(name, func(t *testing.T) {
			inServed(t, func(w *world) {
				w.endPod("ws-1")
				w.settle()
				w.wantOut("It terminates", true, false)
				change(w)
				w.settle()
				w.wantOut("Nobody names it", false, false)
			})
		})
	}
}

// TestPodChangesThatEnqueue: most status updates of a kubelet enqueue nothing, nor do pods of other DaemonSets.
func TestPodChangesThatEnqueue(t *testing.T) {
	inServed(t, func(w *world) {
		pod := w.podOn("ws-1")
		for name, tc := range map[string]struct {
			change func(*corev1.Pod)
			want   bool
		}{
			"Heartbeat": {func(p *corev1.Pod) { p.Status.PodIP, p.Annotations = "192.0.2.99", map[string]string{"a": "b"} }, false},
			"Ends":      {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, true},
			"Ready":     {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
			"Another":   {func(p *corev1.Pod) { p.UID = "another" }, true},
			"Adopted":   {func(p *corev1.Pod) { p.OwnerReferences = nil }, true},
		} {
			after := pod.DeepCopy()
			tc.change(after)
			if got := detach.PodChanges.Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: after}); got != tc.want {
				t.Errorf("%s: wakes %t, want %t", name, got, tc.want)
			}
		}
		set := &appsv1.DaemonSet{}
		for name, tc := range map[string]struct {
			change func(*appsv1.DaemonSet)
			want   bool
		}{
			"Ready":    {func(d *appsv1.DaemonSet) { d.Status.NumberReady = 1 }, false},
			"Seen":     {func(d *appsv1.DaemonSet) { d.Status.ObservedGeneration = 1 }, true},
			"Outdated": {func(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 1 }, true},
		} {
			after := set.DeepCopy()
			tc.change(after)
			if got := detach.SetChanges.Update(event.UpdateEvent{ObjectOld: set, ObjectNew: after}); got != tc.want {
				t.Errorf("DaemonSet %s: wakes %t, want %t", name, got, tc.want)
			}
		}
		want := []ctrl.Request{detach.RequestFor(cluster, "ws-1"), detach.RequestFor(cluster, "")}
		if got := w.nodes.OfPod(t.Context(), cluster, pod); !slices.Equal(got, want) {
			t.Errorf("it wakes %v, want %v", got, want)
		}
		pod.OwnerReferences[0].Name = "another"
		if got := w.nodes.OfPod(t.Context(), cluster, pod); len(got) > 0 {
			t.Errorf("a pod that nobody asks for wakes %v", got)
		}
	})
}

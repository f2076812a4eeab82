// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// runSet creates the DaemonSet of the existing pods, with its first revision.
func (w *world) runSet(strategy appsv1.DaemonSetUpdateStrategyType) {
	w.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "ingress", UID: "ingress"}}
	set.Spec.UpdateStrategy.Type = strategy
	w.create(set)
	w.updateSet("1")
}

// updateSet changes the template of the DaemonSet. Its controller has observed the change.
func (w *world) updateSet(revision string) {
	w.Helper()
	set := w.set()
	set.Generation++
	w.must(w.Update(w.Context(), set))
	c := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "ingress-" + revision, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}}}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ingress", UID: "ingress", Controller: new(true)}}
	w.must(client.IgnoreNotFound(w.Delete(w.Context(), c)))
	c.ResourceVersion, c.Revision = "", set.Generation
	w.create(c)
	w.observeSet()
}

func (w *world) set() *appsv1.DaemonSet {
	w.Helper()
	set := &appsv1.DaemonSet{}
	w.must(w.Get(w.Context(), client.ObjectKey{Namespace: "edge", Name: "ingress"}, set))
	return set
}

// revision returns the current revision.
func (w *world) revision() string {
	w.Helper()
	list := &appsv1.ControllerRevisionList{}
	w.must(w.List(w.Context(), list))
	last := list.Items[0]
	for _, c := range list.Items {
		if c.Revision > last.Revision {
			last = c
		}
	}
	return last.Labels[appsv1.ControllerRevisionHashLabelKey]
}

// observeSet updates the status of the DaemonSet, as its controller does.
func (w *world) observeSet() {
	w.Helper()
	set, revision := w.set(), w.revision()
	set.Status = appsv1.DaemonSetStatus{ObservedGeneration: set.Generation}
	for _, node := range []string{"ws-1", "ws-2"} {
		set.Status.DesiredNumberScheduled++
		if p := w.podOn(node); p != nil && p.Labels[appsv1.ControllerRevisionHashLabelKey] == revision {
			set.Status.UpdatedNumberScheduled++
		}
	}
	w.must(w.Status().Update(w.Context(), set))
}

// replace stops pods, as kubelets do, and creates others, which are Ready, as the DaemonSet's controller does.
func (w *world) replace(ready bool) {
	w.Helper()
	for _, node := range []string{"ws-1", "ws-2"} {
		w.stopPod(node)
		if w.podOn(node) == nil && w.node(node) != nil {
			w.runPod(node, w.revision(), ready)
		}
	}
	w.observeSet()
}

// rollout returns the revisions of the pods. An x marks a terminating pod.
func (w *world) rollout() string {
	w.Helper()
	var all []string
	for _, node := range []string{"ws-1", "ws-2"} {
		p, text := w.podOn(node), "-"
		if p != nil {
			text = p.Labels[appsv1.ControllerRevisionHashLabelKey]
			if !p.DeletionTimestamp.IsZero() {
				text += "x"
			}
		}
		if w.edge.servers[node].drains {
			text += " out"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (w *world) want(when, want string) {
	w.Helper()
	if got := w.rollout(); got != want {
		w.Errorf("%s: pods are %q, want %q; it says %+v", when, got, want, w.rolled())
	}
}

// rolled returns the condition DaemonSetsUpToDate.
func (w *world) rolled() metav1.Condition {
	w.Helper()
	c := conditions.Get(w.balancer(), expv1.DaemonSetsUpToDateCondition)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

func (w *world) wantRolled(reason, says string) {
	w.Helper()
	if c := w.rolled(); c.Reason != reason || c.Message != says {
		w.Errorf("it says %s %q, want %s %q", c.Reason, c.Message, reason, says)
	}
}

// inRoll runs a test in a world whose DaemonSet has roll set, and is outdated on both Nodes.
func inRoll(t *testing.T, test func(*world)) {
	t.Helper()
	inServed(t, func(w *world) {
		w.names(w.balancer(), true)
		w.runSet(appsv1.OnDeleteDaemonSetStrategyType)
		w.settle()
		w.wantRolled(expv1.UpToDateReason, "")
		w.updateSet("2")
		test(w)
	})
}

// TestARollTakesOneNodeAfterTheOther runs a roll to its end.
func TestARollTakesOneNodeAfterTheOther(t *testing.T) {
	inRoll(t, func(w *world) {
		w.edge.servers["ws-1"].connections = 3
		for range 4 {
			w.turn()
		}
		w.want("It is being detached", "1 out, 1")
		w.wantRolled(expv1.RollingOutReason, "edge/ingress: 2 outdated; Node ws-1 is being detached")
		if a := w.attachment("ws-1"); a.Spec.Trigger != "DaemonSetRoll edge/ingress" {
			t.Errorf("attachment %+v", a.Spec)
		}
		w.edge.servers["ws-1"].connections = 0
		for range 3 {
			w.turn()
		}
		w.want("It is out", "1x out, 1")
		w.restart()
		w.replace(false)
		for range 5 {
			w.turn()
		}
		w.want("The next one starts", "2 out, 1")
		w.wantRolled(expv1.RollingOutReason, "edge/ingress: 1 outdated; Node ws-1 waits for a Ready pod")
		w.readyPod("ws-1", corev1.ConditionTrue)
		w.observeSet()
		w.settle()
		w.want("It is back, and the next one out", "2, 1x out")
		w.replace(true)
		w.settle()
		w.want("All are back", "2, 2")
		w.wantRolled(expv1.UpToDateReason, "")
		if w.attachment("ws-1") != nil || w.attachment("ws-2") != nil {
			t.Errorf("attachments %+v %+v", w.attachment("ws-1"), w.attachment("ws-2"))
		}
		before := fmt.Sprint(len(w.writes), w.edge.writes, w.edge.reads)
		w.turn()
		if after := fmt.Sprint(len(w.writes), w.edge.writes, w.edge.reads); before != after {
			t.Errorf("a settled world is asked and written to: %s, then %s", before, after)
		}
	})
}

// TestWhatARollWaitsFor has a case for each obstacle.
func TestWhatARollWaitsFor(t *testing.T) {
	edit := func(w *world, change func(*expv1.LoadBalancer)) {
		lb := w.balancer()
		change(lb)
		lb.Generation++
		w.must(w.Update(w.Context(), lb))
	}
	for name, tc := range map[string]struct {
		reason, says string
		before       func(*world)
		pods         string
		after        func(*world)
		then         string
	}{
		"Floor": {
			"No deadline counts.", "edge/ingress: 2 outdated; Node ws-1 is being detached",
			func(w *world) { edit(w, func(lb *expv1.LoadBalancer) { lb.Spec.MinMembers = new(int32(2)) }) }, "1, 1",
			func(w *world) { edit(w, func(lb *expv1.LoadBalancer) { lb.Spec.MinMembers = new(int32(1)) }) }, "1x out, 1",
		},
		"Dark": {
			"Another Node serves nobody.", "edge/ingress: 2 outdated; Node ws-2 has no Ready pod",
			func(w *world) { w.readyPod("ws-2", corev1.ConditionFalse) }, "1, 1",
			func(w *world) { w.readyPod("ws-2", corev1.ConditionTrue) }, "1x out, 1",
		},
		"Ended": {
			"Another Node is out.", "edge/ingress: 1 outdated; Node ws-2 waits for a Ready pod",
			func(w *world) {
				w.updateSet("1")
				w.endPod("ws-2")
				w.settle()
				w.stopPod("ws-2")
				w.updateSet("2")
			}, "1, - out",
			func(w *world) { w.replace(true) }, "1x out, 2",
		},
		"Missing": {
			"Another Node has none.", "edge/ingress: 1 outdated; a Node has no pod",
			func(w *world) { w.endPod("ws-2"); w.stopPod("ws-2") }, "1, -",
			func(w *world) { w.replace(true) }, "1x out, 2",
		},
		"NeverReady": {
			"It would be the next one, too.", "edge/ingress: 1 outdated; Node ws-1 waits for a Ready pod",
			func(w *world) { w.settle(); w.replace(false) }, "2 out, 1",
			func(w *world) { w.readyPod("ws-1", corev1.ConditionTrue) }, "2, 1x out",
		},
		"NoSet": {
			"Nobody knows its revision.", "edge/ingress: there is no such DaemonSet",
			func(w *world) { w.must(w.Delete(w.Context(), w.set())) }, "1, 1",
			func(w *world) { w.runSet(appsv1.OnDeleteDaemonSetStrategyType); w.updateSet("2") }, "1x out, 1",
		},
		"NotOnDelete": {
			"Its controller rolls it.", "edge/ingress: its updateStrategy is not OnDelete",
			func(w *world) {
				set := w.set()
				set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
				w.must(w.Update(w.Context(), set))
			}, "1, 1",
			func(w *world) {
				set := w.set()
				set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
				w.must(w.Update(w.Context(), set))
			}, "1x out, 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRoll(t, func(w *world) {
				tc.before(w)
				w.settle()
				w.want(name+": "+tc.reason, tc.pods)
				w.wantRolled(expv1.RolloutStalledReason, tc.says)
				tc.after(w)
				w.settle()
				w.want(name+", after", tc.then)
			})
		})
	}
}

// TestADeadlineEndsTheWait: a deadline ends the wait of a roll for connections, and for a load balancer that does not
// answer.
func TestADeadlineEndsTheWait(t *testing.T) {
	for name, before := range map[string]func(*world){
		"Connections": func(w *world) { w.edge.servers["ws-1"].connections = 3 },
		"Silent":      func(w *world) { w.edge.down = true },
	} {
		t.Run(name, func(t *testing.T) {
			inRoll(t, func(w *world) {
				before(w)
				for range 4 {
					w.turn()
				}
				if p := w.podOn("ws-1"); !p.DeletionTimestamp.IsZero() {
					t.Error("it is deleted at once")
				}
				w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
				for range 4 {
					w.turn()
				}
				if p := w.podOn("ws-1"); p.DeletionTimestamp.IsZero() || !w.podOn("ws-2").DeletionTimestamp.IsZero() {
					t.Errorf("pods are %q", w.rollout())
				}
			})
		})
	}
}

// TestARollIsCalledOff: before the first pod is deleted, people revert the change, disable rolls, cordon the Node, or
// pause everything.
func TestARollIsCalledOff(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*world)
		pods    string
	}{
		"TakenBack": {func(w *world) { w.updateSet("1") }, "1, 1"},
		"SetGone":   {func(w *world) { w.must(w.Delete(w.Context(), w.set())) }, "1, 1"},
		"TurnedOff": {func(w *world) { w.names(w.balancer(), false) }, "1, 1"},
		"Cordoned":  {func(w *world) { w.edit("ws-1", cordon) }, "1 out, 1"}, // The other one is the last.
		"Paused":    {func(w *world) { w.gate = &actuate.Gate{Paused: true}; w.restart() }, "1 out, 1"},
		"Shadow":    {func(w *world) { w.gate = &actuate.Gate{DryRun: true}; w.restart() }, "1 out, 1"},
	} {
		t.Run(name, func(t *testing.T) {
			inRoll(t, func(w *world) {
				w.edge.servers["ws-1"].connections = 3
				for range 4 {
					w.turn()
				}
				w.want("It begins", "1 out, 1")
				tc.happens(w)
				w.edge.servers["ws-1"].connections = 0
				for range 12 {
					w.clock.SetTime(w.clock.Now().Add(time.Minute))
					w.turn()
				}
				w.want(name, tc.pods)
			})
		})
	}
}

// TestAPodThatIsGoneAlreadyIsReplaced: the cache still shows a deleted pod when it is selected.
func TestAPodThatIsGoneAlreadyIsReplaced(t *testing.T) {
	inRoll(t, func(w *world) {
		w.edge.servers["ws-1"].connections = 3
		for range 4 {
			w.turn()
		}
		w.stale = w.podOn("ws-1")
		w.endPod("ws-1")
		w.stopPod("ws-1")
		w.edge.servers["ws-1"].connections = 0
		before := len(w.writes)
		for range 4 {
			w.turn()
		}
		for _, write := range w.writes[before:] {
			if !strings.HasPrefix(write, "patch status ") {
				t.Errorf("it is called off: %s", write)
			}
		}
		w.stale = nil
		w.settle()
		w.want("It is out until another one is Ready", "- out, 1")
	})
}

// TestDetachedNodeIsSkipped: a Node that is detached for another reason is skipped, and delays no other.
func TestDetachedNodeIsSkipped(t *testing.T) {
	inRoll(t, func(w *world) {
		w.edge.servers["third"] = &server{address: "192.0.2.3"}
		w.edit("ws-1", cordon)
		w.readyPod("ws-1", corev1.ConditionFalse)
		w.settle()
		w.want("The other one is rolled", "1 out, 1x out")
		w.replace(true)
		w.settle()
		w.want("It is rolled", "1 out, 2")
		w.wantRolled(expv1.RollingOutReason, "edge/ingress: 1 outdated; Node ws-1 is out for another reason")
		w.readyPod("ws-1", corev1.ConditionTrue)
		w.edit("ws-1", uncordon)
		w.settle()
		w.want("Its turn has come", "1x out, 2")
	})
}

// TestANodeWithoutItsPodsIsNotWaitedFor: a Node without a pod of the DaemonSet is being attached again.
func TestANodeWithoutItsPodsIsNotWaitedFor(t *testing.T) {
	inRoll(t, func(w *world) {
		a := &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: detach.AttachmentName(cluster.Name, "aside"), Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		}}
		a.Spec.ClusterName, a.Spec.NodeName = cluster.Name, "aside"
		w.create(a)
		w.settle()
		w.want("It has no pod, and needs none", "1x out, 1")
	})
}

// TestStaleCacheStartsNoSecondReplacement: the cache does not show the NodeAttachment of the detached Node.
func TestStaleCacheStartsNoSecondReplacement(t *testing.T) {
	inRoll(t, func(w *world) {
		w.edge.servers["ws-1"].connections = 3
		for range 4 {
			w.turn()
		}
		w.nodes.Reader = interceptor.NewClient(w.WithWatch, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*expv1.NodeAttachmentList); ok {
				return nil
			}
			return c.List(ctx, list, opts...)
		}})
		w.readyPod("ws-1", corev1.ConditionTrue)
		pod := w.podOn("ws-1") // As if it had been rolled already.
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "2"
		w.must(w.Update(w.Context(), pod))
		_, err := w.nodes.Reconcile(w.Context(), detach.RequestFor(cluster, ""))
		w.must(err)
		if a := w.attachment("ws-2"); a != nil {
			t.Errorf("another Node is taken out: %+v", a.Spec)
		}
	})
}

// TestARollLosesAnyWrite: each write, or its response, is lost, and another manager continues.
func TestARollLosesAnyWrite(t *testing.T) {
	t.Parallel()
	every := testenv.Shorter(1, 5) // Each write, or each fifth with -short.
	for _, late := range []bool{false, true} {
		for n, lost := rand.N(every), true; lost; n += every {
			inRoll(t, func(w *world) {
				w.fails, w.late = n, late
				w.rollOn(func() {
					if w.out() > 1 {
						t.Fatalf("write %d, late %v: both Nodes are out: %q", n, late, w.rollout())
					}
				})
				if lost = w.fails < 0; lost && n > 100 {
					t.Fatal("it never ends")
				}
				if got := w.rollout(); got != "2, 2" {
					t.Errorf("write %d, late %v: pods are %q; it says %+v", n, late, got, w.rolled())
				}
			})
		}
	}
}

// rollOn runs a roll to its end, and replaces pods.
func (w *world) rollOn(check func()) {
	w.Helper()
	for i := range 60 {
		before := w.fails
		w.turn()
		if before >= 0 && w.fails < 0 {
			w.restart()
		}
		check()
		if i%4 != 3 {
			continue
		}
		w.replace(true)
		if w.rollout() == "2, 2" && w.attachment("ws-1") == nil && w.attachment("ws-2") == nil && w.rolled().Reason == expv1.UpToDateReason {
			return
		}
	}
	w.Errorf("it has no end: %q, %+v", w.rollout(), w.rolled())
}

// out returns the number of detached Nodes.
func (w *world) out() (n int) {
	w.Helper()
	for _, node := range []string{"ws-1", "ws-2"} {
		p := w.podOn(node)
		if w.edge.servers[node].drains || p == nil || !p.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

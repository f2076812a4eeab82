// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

// story is a world with the actions of other parties.
type story struct {
	*world
	// cordoned are the Nodes that others have cordoned. blocked are the servers that others have disabled.
	cordoned, blocked map[string]bool
	lives             int
}

// rapidly is a tester for a property.
type rapidly struct{ *rapid.T }

func (rapidly) Context() context.Context { return context.Background() }

// TestEachMembershipIsRestored runs random actions in any order. Others cordon, uncordon, taint and annotate Nodes.
// Machines leave, vanish and come back. Pods of a DaemonSet end and start, and it gets another template. The load
// balancer loses drains and stops to answer, and the manager crashes. A cordon of others is never removed, 5-Spot's
// always is, and every membership is restored.
func TestEachMembershipIsRestored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := newStory(rt)
		s.run(rt, s.actions())
		s.finish()
	})
}

func newStory(rt *rapid.T) *story {
	s := &story{world: newWorld(rapidly{rt}), cordoned: map[string]bool{}, blocked: map[string]bool{}, lives: 1}
	s.serve()
	return s
}

// run runs some of the actions.
func (s *story) run(rt *rapid.T, actions []action) {
	s.Helper()
	names := make([]string, 0, len(actions))
	for _, a := range actions {
		names = append(names, a.name)
	}
	for range rapid.IntRange(1, 25).Draw(rt, "length") {
		i := rapid.SampledFrom(names).Draw(rt, "action")
		node := rapid.SampledFrom([]string{"ws-1", "ws-2"}).Draw(rt, "node")
		for _, a := range actions {
			if a.name == i {
				a.do(rt, node)
			}
		}
		s.check()
	}
}

type action struct {
	name string
	do   func(rt *rapid.T, node string)
}

func (s *story) actions() []action {
	turn := func(*rapid.T, string) { s.turn() }
	return []action{
		{"turn", turn},
		{"turn again", turn},
		{"settle", func(*rapid.T, string) {
			if !s.edge.down && s.fails < 0 && !s.lost && !s.edge.half && s.refuses == "" && !s.edge.servers["ws-1"].refuses && !s.edge.servers["ws-2"].refuses {
				s.settle()
			}
		}},
		{"cordon", func(_ *rapid.T, node string) {
			if n := s.node(node); n != nil && !n.Spec.Unschedulable {
				s.edit(node, cordon)
				s.cordoned[node] = true
			}
		}},
		{"uncordon", func(_ *rapid.T, node string) { s.edit(node, uncordon); delete(s.cordoned, node) }},
		{"taint", func(_ *rapid.T, node string) {
			s.edit(node, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: plan.AutoscalerTaint, Value: "1"}} })
		}},
		{"untaint", func(_ *rapid.T, node string) { s.edit(node, func(n *corev1.Node) { n.Spec.Taints = nil }) }},
		{"ask", func(rt *rapid.T, node string) {
			value := rapid.SampledFrom([]string{"true", "false", ""}).Draw(rt, "value")
			s.edit(node, func(n *corev1.Node) { n.Annotations = map[string]string{"exp.5spot.finos.org/detach": value} })
		}},
		{"leave", func(_ *rapid.T, node string) { s.leave(node, v1alpha1.WindowClosed) }},
		{"reclaim", func(_ *rapid.T, node string) { s.leave(node, v1alpha1.ReclaimedByOwner) }},
		{"wait for a turn", func(_ *rapid.T, node string) { s.leave(node, "") }},
		{"vanish", func(_ *rapid.T, node string) { s.vanish(node) }},
		{"go", func(_ *rapid.T, node string) { s.goAway(node) }},
		{"come back", func(_ *rapid.T, node string) { s.comeBack(node) }},
		{"restart", func(*rapid.T, string) { s.restart() }},
		{"lose a write", func(rt *rapid.T, _ string) {
			s.fails, s.late = rapid.IntRange(0, 4).Draw(rt, "writes"), rapid.Bool().Draw(rt, "late")
			s.turn()
			s.fails = -1
			s.restart()
		}},
		{"fall silent", func(*rapid.T, string) { s.edge.down = !s.edge.down }},
		{"disconnect", func(*rapid.T, string) { s.lost = !s.lost }},
		{"forget", func(*rapid.T, string) {
			for _, server := range s.edge.servers {
				server.drains = false
			}
		}},
		{"end a pod", func(_ *rapid.T, node string) { s.endPod(node) }},
		{"stop a pod", func(_ *rapid.T, node string) { s.stopPod(node) }},
		{"start a pod", func(_ *rapid.T, node string) { s.startPod(node) }},
		{"have a pod be ready", func(rt *rapid.T, node string) {
			s.readyPod(node, rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}).Draw(rt, "ready"))
		}},
		{"update the DaemonSet", func(rt *rapid.T, _ string) { s.updateSet(rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "revision")) }},
		{"replace pods", func(rt *rapid.T, _ string) { s.replace(rapid.Bool().Draw(rt, "ready")) }},
		{"see no pods", func(*rapid.T, string) { s.blind = !s.blind }},
		{"disable", func(_ *rapid.T, node string) {
			if lb := s.balancer(); lb == nil || !lb.DeletionTimestamp.IsZero() {
				return
			}
			if a := s.attachment(node); a != nil && !a.DeletionTimestamp.IsZero() {
				return
			}
			s.edge.servers[node].blocked = !s.edge.servers[node].blocked
		}},
	}
}

// serve adds the pods' DaemonSet to the LoadBalancer.
func (s *story) serve() {
	s.Helper()
	s.names(s.balancer(), true)
	for _, name := range []string{"ws-1", "ws-2"} {
		s.runPod(name, "1", true)
	}
	s.runSet(appsv1.OnDeleteDaemonSetStrategyType)
}

// startPod creates a pod if there is none.
func (s *story) startPod(name string) {
	s.Helper()
	if s.podOn(name) == nil {
		s.runPod(name, s.revision(), false)
	}
}

// goAway removes a Machine and its Node.
func (s *story) goAway(name string) {
	s.Helper()
	s.vanish(name)
	if n := s.node(name); n != nil {
		s.must(s.Delete(s.Context(), n))
	}
	delete(s.cordoned, name)
}

// comeBack adds a machine again.
func (s *story) comeBack(name string) {
	s.Helper()
	if s.node(name) == nil && s.machine(name) == nil {
		s.lives++
		s.join(name, s.lives)
	}
}

// check must hold at any time.
func (s *story) check() {
	s.Helper()
	for name := range s.cordoned {
		if n := s.node(name); n != nil && !n.Spec.Unschedulable {
			s.Errorf("somebody else had cordoned %s: %v", name, s.writes)
		}
	}
	rolled := 0
	for _, name := range []string{"ws-1", "ws-2"} {
		if a := s.attachment(name); a != nil && len(a.Spec.DaemonSets) > 0 && a.Spec.DaemonSets[0].PodUID != "" {
			rolled++
		}
	}
	if rolled > 1 {
		s.Errorf("two Nodes are rolled at a time: %v", s.writes)
	}
}

// finish reverts the actions of all others.
func (s *story) finish() {
	s.Helper()
	s.edge.down, s.lost, s.blind = false, false, false
	for _, server := range s.edge.servers {
		server.blocked = false
	}
	for _, name := range []string{"ws-1", "ws-2"} {
		s.vanish(name)
		if s.node(name) == nil {
			s.lives++
			s.must(s.Create(s.Context(), s.nodeObject(name, s.lives)))
		}
		if s.cordoned[name] {
			s.edit(name, uncordon)
		}
		s.edit(name, func(n *corev1.Node) { n.Spec.Taints = nil; delete(n.Annotations, "exp.5spot.finos.org/detach") })
		s.stopPod(name)
		s.startPod(name)
		s.readyPod(name, corev1.ConditionTrue)
	}
	for range 3 { // Each is rolled, and then there is nothing to do.
		s.observeSet()
		s.settle()
		s.replace(true)
	}
	s.settle()
	for name, server := range s.edge.servers {
		if server.drains {
			s.Errorf("server %s is not put back: %v", name, s.attachment(name))
		}
		if n := s.node(name); n.Spec.Unschedulable {
			s.Errorf("Node %s is cordoned: %+v", name, n.ManagedFields)
		}
		if p := s.podOn(name); p.Labels[appsv1.ControllerRevisionHashLabelKey] != s.revision() {
			s.Errorf("the pod on %s is outdated: it says %+v", name, s.rolled())
		}
		if a := s.attachment(name); a != nil {
			s.Errorf("NodeAttachment %s is left: %+v", name, a)
		}
	}
	before := fmt.Sprint(len(s.writes), s.edge.writes, s.edge.reads)
	s.turn()
	if after := fmt.Sprint(len(s.writes), s.edge.writes, s.edge.reads); before != after {
		s.Errorf("a settled world is asked and written to: %s, then %s", before, after)
	}
}

// TestEachMembershipIsRestoredDespiteOtherClients also deletes objects and creates them again. A part of a load
// balancer, or an API server, rejects calls.
func TestEachMembershipIsRestoredDespiteOtherClients(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := newStory(rt)
		rolls := func(a action) bool { return a.name == "update the DaemonSet" } // A deleted LoadBalancer rolls nothing.
		s.run(rt, append(slices.DeleteFunc(s.actions(), rolls), s.more()...))
		s.edge.half, s.refuses = false, ""
		for _, server := range s.edge.servers {
			server.refuses = false
		}
		if s.balancer() == nil {
			s.newBalancer()
		}
		s.finish()
	})
}

func (s *story) newBalancer() {
	lb := s.balancerObject("edge")
	lb.UID = "edge-2"
	s.create(lb)
	s.names(lb, true)
}

func (s *story) more() []action {
	return []action{
		{"delete attachment", func(_ *rapid.T, node string) {
			if a := s.attachment(node); a != nil && s.node(node) != nil {
				s.must(client.IgnoreNotFound(s.Delete(s.Context(), a)))
			}
		}},
		{"delete attachment always", func(_ *rapid.T, node string) {
			if a := s.attachment(node); a != nil && !s.edge.servers[node].blocked {
				s.must(client.IgnoreNotFound(s.Delete(s.Context(), a)))
			}
		}},
		{"half", func(*rapid.T, string) { s.edge.half = !s.edge.half }},
		{"server refuses", func(_ *rapid.T, node string) { s.edge.servers[node].refuses = !s.edge.servers[node].refuses }},
		{"api refuses", func(rt *rapid.T, node string) {
			s.refuses = rapid.SampledFrom([]string{"", node, "lab." + node, "edge"}).Draw(rt, "refuses")
		}},
		{"delete lb", func(*rapid.T, string) {
			if lb := s.balancer(); lb != nil && !s.edge.servers["ws-1"].blocked && !s.edge.servers["ws-2"].blocked {
				s.must(client.IgnoreNotFound(s.Delete(s.Context(), lb)))
			}
		}},
		{"make lb", func(*rapid.T, string) {
			if s.balancer() == nil {
				s.newBalancer()
			}
		}},
		{"lose status", func(_ *rapid.T, node string) {
			if a := s.attachment(node); a != nil {
				a.Status = expv1.NodeAttachmentStatus{}
				s.must(s.Status().Update(s.Context(), a))
			}
		}},
		{"floor", func(rt *rapid.T, _ string) {
			if lb := s.balancer(); lb != nil {
				lb.Spec.MinMembers = new(int32(rapid.IntRange(0, 1).Draw(rt, "floor")))
				lb.Generation++
				s.must(s.Update(s.Context(), lb))
			}
		}},
	}
}

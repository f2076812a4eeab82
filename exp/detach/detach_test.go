// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

func cordon(n *corev1.Node)   { n.Spec.Unschedulable = true }
func uncordon(n *corev1.Node) { n.Spec.Unschedulable = false }

func TestANodeThatRunsCostsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.settle()
		if len(w.writes) > 0 || w.edge.asked+w.edge.told > 0 {
			t.Errorf("wrote %v, asked %d times, told %d times", w.writes, w.edge.asked, w.edge.told)
		}
	})
}

func TestACordonedNodeIsTakenOutAndPutBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		if !w.edge.servers["ws-1"].drains || w.edge.servers["ws-2"].drains || w.edge.told != 1 {
			t.Errorf("servers %+v %+v, told %d times, want once", w.edge.servers["ws-1"], w.edge.servers["ws-2"], w.edge.told)
		}
		w.edit("ws-1", uncordon)
		w.settle()
		if w.edge.servers["ws-1"].drains || w.attachment("ws-1") != nil || w.edge.told != 2 {
			t.Errorf("server %+v, attachment %+v, told %d times", w.edge.servers["ws-1"], w.attachment("ws-1"), w.edge.told)
		}
		if n := w.node("ws-1"); n.Annotations["node-detacher.variant.run/detaching"] != "false" {
			t.Errorf("annotations %v", n.Annotations)
		}
	})
}

// TestAMachineThatLeavesIsCordonedByUs has its Node stay after all.
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

// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
)

// TestANodeThatCannotBeWrittenLeavesItsLoadBalancer: the workload cluster rejects writes to the Node. The cause is a
// webhook, or a kubelet that has filled the annotations of its Node.
func TestANodeThatCannotBeWrittenLeavesItsLoadBalancer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuses = "ws-1"
		w.leave("ws-1", v1alpha1.WindowClosed)
		for range 10 {
			w.turn()
		}
		if !w.edge.servers["ws-1"].drains || w.attachment("ws-1") == nil {
			t.Errorf("its load balancer is never told: %+v, %v", w.edge.servers["ws-1"], w.attachment("ws-1"))
		}
	})
}

// TestTwoNodesThatNameOneAddress: the Machines have no addresses, as with providers that do not report them. One
// kubelet reports the address of another Node.
func TestTwoNodesThatNameOneAddress(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"ws-1", "ws-2"} {
			m := w.machine(name)
			m.Status.Addresses = nil
			w.must(w.Status().Update(w.Context(), m))
		}
		n := w.node("ws-1")
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.2"})
		w.must(w.Status().Update(w.Context(), n))
		w.edge.servers["static"] = &server{address: "192.0.2.77"}
		w.edit("ws-1", func(n *corev1.Node) { n.Annotations = map[string]string{"exp.5spot.finos.org/detach": "true"} })
		w.settle()
		if w.edge.servers["ws-2"].drains {
			t.Error("ws-1 has taken the place of ws-2, whose Node names the address, too")
		}
	})
}

// TestMembershipOfMachineOfAnotherCluster: a Node whose Machine has no address reports an address of a Machine of
// another Cluster behind the same load balancer.
func TestMembershipOfMachineOfAnotherCluster(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.machine("ws-1")
		m.Status.Addresses = nil
		w.must(w.Status().Update(w.Context(), m))
		w.create(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "other", UID: "other"}})
		o := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "ws-9", Labels: map[string]string{clusterv1.ClusterNameLabel: "other"}}}
		o.Spec.ClusterName = "other"
		w.create(o)
		o.Status.NodeRef.Name, o.Status.Addresses = "ws-9", clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.9"}}
		w.must(w.Status().Update(w.Context(), o))
		w.edge.servers["ws-9"] = &server{address: "192.0.2.9"}
		n := w.node("ws-1")
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.9"})
		w.must(w.Status().Update(w.Context(), n))
		w.edit("ws-1", func(n *corev1.Node) { n.Annotations = map[string]string{"exp.5spot.finos.org/detach": "true"} })
		w.settle()
		if w.edge.servers["ws-9"].drains {
			t.Error("ws-1 has taken the place of a Machine of another Cluster")
		}
	})
}

// TestANodeAttachmentOfAnotherClusterIsLeftAlone: the names of two Clusters and their Nodes result in the same
// NodeAttachment name.
func TestANodeAttachmentOfAnotherClusterIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.nodeObject("ws-1", 7)
		n.Name = "x.ws-9"
		w.create(n)
		w.create(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "lab.x", UID: "other"}})
		a := &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: detach.AttachmentName("lab.x", "ws-9"), UID: "theirs",
			Labels: map[string]string{clusterv1.ClusterNameLabel: "lab.x"}, Finalizers: []string{expv1.Finalizer},
		}}
		a.Spec.ClusterName, a.Spec.NodeName, a.Spec.NodeUID, a.Spec.Trigger = "lab.x", "ws-9", "u", "Departure"
		a.Spec.Memberships = []expv1.Membership{{LoadBalancer: "theirs", Pool: "web", Member: "ws-9", Persistent: true}}
		w.create(a)
		_, err := w.nodes.Reconcile(w.Context(), detach.RequestFor(cluster, "x.ws-9"))
		w.must(err)
		got := &expv1.NodeAttachment{}
		w.must(w.Get(w.Context(), client.ObjectKeyFromObject(a), got))
		if got.Spec.Trigger != "Departure" || got.Spec.NodeUID != "u" {
			t.Errorf("a Node of Cluster lab has changed what is on record of Cluster lab.x: %+v", got.Spec)
		}
	})
}

// TestWritesAreBoundedInConflict: another program changes the same annotation after each write of 5-Spot.
func TestWritesAreBoundedInConflict(t *testing.T) {
	inWorld(t, func(w *world) {
		w.edit("ws-1", cordon)
		w.settle()
		before := len(w.writes)
		for range 100 { // Within a second.
			w.edit("ws-1", func(n *corev1.Node) { n.Annotations["node-detacher.variant.run/detaching"] = "false" })
			_, err := w.nodes.Reconcile(w.Context(), detach.RequestFor(cluster, "ws-1"))
			w.must(err)
		}
		if n := len(w.writes) - before; n > 10 {
			t.Errorf("%d writes in a second: %v", n, slices.Compact(w.writes[before:]))
		}
	})
}

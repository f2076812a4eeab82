// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
)

// TestNodeCannotClaimAddressOfOtherMachine: the Machine of ws-1 has no address. Its kubelet reports the address of
// another machine, and more addresses than can be recorded.
func TestNodeCannotClaimAddressOfOtherMachine(t *testing.T) {
	hideAddresses := func(w *world, machine string) {
		m := w.machine(machine)
		m.Status.Addresses = nil
		w.must(w.Status().Update(w.Context(), m))
	}
	for name, tc := range map[string]struct {
		server, address string
		before          func(*world)
	}{
		"OfMachine": {"ws-2", "192.0.2.2", func(*world) {}},
		"OfNode":    {"ws-2", "192.0.2.2", func(w *world) { hideAddresses(w, "ws-2") }},
		"OtherCluster": {"ws-9", "192.0.2.9", func(w *world) {
			w.create(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "other", UID: "other"}})
			o := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "ws-9", Labels: map[string]string{clusterv1.ClusterNameLabel: "other"}}}
			o.Spec.ClusterName = "other"
			w.create(o)
			o.Status.NodeRef.Name, o.Status.Addresses = "ws-9", clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.9"}}
			w.must(w.Status().Update(w.Context(), o))
			w.edge.servers["ws-9"] = &server{address: "192.0.2.9"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.edge.servers["static"] = &server{address: "192.0.2.77"} // minMembers allows two drains.
				hideAddresses(w, "ws-1")
				tc.before(w)
				n := w.node("ws-1")
				for _, address := range []string{tc.address, "no address"} {
					n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
				}
				for i := range 40 {
					n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprint("198.51.100.", i)})
				}
				w.must(w.Status().Update(w.Context(), n))
				w.edit("ws-1", cordon)
				w.settle()
				if !w.edge.servers["ws-1"].drains || w.edge.servers[tc.server].drains {
					t.Errorf("servers %+v and %+v, want a drain of ws-1 only", w.edge.servers["ws-1"], w.edge.servers[tc.server])
				}
				if got := w.attachment("ws-1").Spec.Addresses; len(got) != 32 || slices.Contains(got, tc.address) || slices.Contains(got, "no address") {
					t.Errorf("recorded addresses %v", got)
				}
			})
		})
	}
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

// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// mostAddresses is how many addresses of a Node are written down.
const mostAddresses = 32

// facts is the border between Kubernetes and the decision about a Node.
func (s *scope) facts(now func() time.Time) plan.Node {
	n := nodeFacts(s.node)
	n.ProviderID, n.Identity = s.providerID, identityOf(s.providerID, s.addresses, s.node != nil && ofControlPlane(s.node))
	n.Owned, n.Machine = s.machine != nil, machineFacts(s.machine, now())
	n.Known, n.DaemonSets = s.known, s.daemonSets
	return n
}

func nodeFacts(node *corev1.Node) plan.Node {
	if node == nil {
		return plan.Node{}
	}
	n := plan.Node{
		Exists: true, UID: string(node.UID), Unschedulable: node.Spec.Unschedulable, CordonedByUs: cordonedByUs(node),
		Asks: node.Annotations[expv1.NodeDetachAnnotation], Marked: node.Annotations[expv1.NodeDetachingAnnotation] == "true",
		Stopped: podorder.Stopped(node),
	}
	for _, c := range node.Status.Conditions {
		n.Ready = n.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && node.DeletionTimestamp.IsZero()
	}
	for _, t := range node.Spec.Taints {
		n.Taints = append(n.Taints, plan.Taint{Key: t.Key, Value: t.Value})
	}
	return n
}

// cordonedByUs reports whether nobody has cordoned the Node since we did.
func cordonedByUs(node *corev1.Node) bool {
	return node.Spec.Unschedulable && slices.ContainsFunc(node.ManagedFields, workload.Cordoned)
}

// machineFacts is what becomes of a Machine. One that waits at our hook for its turn has not
// started to leave.
func machineFacts(m *clusterv1.Machine, now time.Time) plan.Machine {
	if m == nil || m.DeletionTimestamp.IsZero() {
		return plan.Stays
	}
	d, recorded := children.DepartureOf(m, now)
	_, held := m.Annotations[v1alpha1.PreDrainHookAnnotation]
	switch {
	case recorded && d.Lane == v1alpha1.ExemptLane:
		return plan.LeavesAtOnce
	case recorded, !held:
		return plan.Leaves
	default:
		return plan.Stays
	}
}

// An other is how a machine is known of which a Node is not.
type other struct {
	providerID string
	addresses  []string
}

// identity is how load balancers know a Node. What its Machine says counts: a Node says of
// itself what its owner wants, and would take another one's place. Where its Machine says nothing,
// it is not believed what others say of theirs. node is nil if there is none.
func identity(node *corev1.Node, m *clusterv1.Machine, others []other) (providerID string, addresses []string) {
	if m != nil {
		providerID, addresses = m.Spec.ProviderID, machineAddresses(m)
	}
	if node == nil {
		return providerID, addresses[:min(len(addresses), mostAddresses)]
	}
	if m == nil && !slices.ContainsFunc(others, func(o other) bool { return o.providerID == node.Spec.ProviderID }) {
		providerID = node.Spec.ProviderID
	}
	if len(addresses) == 0 {
		addresses = nodeAddresses(node)
		for _, o := range others {
			addresses = slices.DeleteFunc(addresses, func(a string) bool { return slices.Contains(o.addresses, a) })
		}
	}
	return providerID, addresses[:min(len(addresses), mostAddresses)]
}

// identityOf is an identity, and whether load balancers know the Node at all, in one word for
// comparisons.
func identityOf(providerID string, addresses []string, controlPlane bool) string {
	words := append([]string{providerID}, addresses...)
	if controlPlane {
		words = append(words, "control-plane")
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// machineAddresses returns the IP addresses of a Machine.
func machineAddresses(m *clusterv1.Machine) (addresses []string) {
	for _, a := range m.Status.Addresses {
		if a.Type == clusterv1.MachineInternalIP || a.Type == clusterv1.MachineExternalIP {
			addresses = append(addresses, a.Address)
		}
	}
	return once(addresses)
}

// nodeAddresses returns the IP addresses of a Node.
func nodeAddresses(node *corev1.Node) (addresses []string) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			addresses = append(addresses, a.Address)
		}
	}
	return once(addresses)
}

// once returns each IP address once. What is none names nobody.
func once(addresses []string) []string {
	addresses = slices.DeleteFunc(addresses, func(a string) bool {
		address, err := netip.ParseAddr(a)
		return err != nil || address.Zone() != ""
	})
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

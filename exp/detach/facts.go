// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// mostAddresses is the maximum number of addresses of a Node that are recorded.
const mostAddresses = 32

// facts converts what was read from Kubernetes to the input of package plan.
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
		DetachAnnotation: node.Annotations[expv1.NodeDetachAnnotation], Marked: node.Annotations[expv1.NodeDetachingAnnotation] == "true",
		Stopped: podorder.Stopped(node), Ready: util.IsNodeReady(node) && node.DeletionTimestamp.IsZero(),
	}
	for _, t := range node.Spec.Taints {
		n.Taints = append(n.Taints, plan.Taint{Key: t.Key, Value: t.Value})
	}
	return n
}

// cordonedByUs reports whether 5-Spot set the cordon, and no other field manager has set it since.
func cordonedByUs(node *corev1.Node) bool {
	return node.Spec.Unschedulable && slices.ContainsFunc(node.ManagedFields, workload.Cordoned)
}

// machineFacts returns whether a Machine leaves. A Machine that waits at the pre-drain hook without a departure record
// has not started to leave.
func machineFacts(m *clusterv1.Machine, now time.Time) plan.Machine {
	if m == nil || m.DeletionTimestamp.IsZero() {
		return plan.Stays
	}
	d, recorded := children.DepartureOf(m, now)
	switch {
	case recorded && d.Lane == v1alpha1.ExemptLane:
		return plan.LeavesAtOnce
	case recorded, !metav1.HasAnnotation(m.ObjectMeta, v1alpha1.PreDrainHookAnnotation):
		return plan.Leaves
	default:
		return plan.AwaitsDeparture
	}
}

// other is the identity of another machine. It excludes these values from the identity of a Node.
type other struct {
	providerID string
	addresses  []string
}

// identity returns the provider ID and addresses by which load balancers identify the Node. The Machine's values take
// precedence: the owner of a machine controls its Node's status, and could claim the membership of another machine. The
// Node's addresses count if the Machine has none. The Node's provider ID counts only if there is no Machine. Values of
// other machines never count. node and m may be nil.
func identity(node *corev1.Node, m *clusterv1.Machine, others []other) (providerID string, addresses []string) {
	if m != nil {
		providerID, addresses = m.Spec.ProviderID, machineAddresses(m)
	}
	if m == nil && node != nil && !slices.ContainsFunc(others, func(o other) bool { return o.providerID == node.Spec.ProviderID }) {
		providerID = node.Spec.ProviderID
	}
	if len(addresses) == 0 && node != nil {
		addresses = nodeAddresses(node)
		for _, o := range others {
			addresses = slices.DeleteFunc(addresses, func(a string) bool { return slices.Contains(o.addresses, a) })
		}
	}
	return providerID, addresses[:min(len(addresses), mostAddresses)]
}

// identityOf joins an identity into one string for comparison. A control plane Node differs from any other, because
// some load balancers exclude it.
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
	return normalizeAddresses(addresses)
}

// nodeAddresses returns the IP addresses of a Node.
func nodeAddresses(node *corev1.Node) (addresses []string) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			addresses = append(addresses, a.Address)
		}
	}
	return normalizeAddresses(addresses)
}

// normalizeAddresses sorts the addresses and removes duplicates, addresses with a zone, and strings that are not IP
// addresses.
func normalizeAddresses(addresses []string) []string {
	addresses = slices.DeleteFunc(addresses, func(a string) bool {
		address, err := netip.ParseAddr(a)
		return err != nil || address.Zone() != ""
	})
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
)

// A Host is what a Machine reports about its host, and what is accepted. The zero value is for no Machine.
type Host struct {
	// Host is what is accepted. An empty field is unknown, which does not mean gone.
	ingest.Host
	// Reported is the report of the Machine.
	Reported ingest.Host
	// Rejected are the rejected values.
	Rejected []ingest.Rejection
}

// NodeRejected reports whether the Machine reports a Node that is rejected, and no Node is accepted.
func (h Host) NodeRejected() bool { return h.Node == "" && h.Reported.Node != "" }

// NodeRejection returns why the reported Node is rejected. It is empty unless NodeRejected.
func (h Host) NodeRejection() string {
	if !h.NodeRejected() {
		return ""
	}
	for _, r := range h.Rejected {
		if r.Reason == ingest.NodeRef {
			return r.Message
		}
	}
	return ""
}

// Is reports whether a Node is the Machine's host, by its provider ID and machine ID. A Node of another host may have
// taken the name. An unknown ID agrees with every other. The accepted provider ID counts, and the one that the Machine
// reports now.
func (h Host) Is(node *corev1.Node) bool {
	if node.Name != h.Node {
		return h.Proves(node)
	}
	id, known := node.Spec.ProviderID, cmp.Or(h.ProviderID, h.Reported.ProviderID)
	return (agree(id, known) || id == h.Reported.ProviderID) && agree(node.Status.NodeInfo.MachineID, h.MachineID)
}

// Proves reports whether the provider ID of a Node, which may not be the accepted one, is the Machine's. Cluster API
// finds Nodes by this ID.
func (h Host) Proves(node *corev1.Node) bool {
	id := node.Spec.ProviderID
	return id != "" && (id == h.ProviderID || id == h.Reported.ProviderID)
}

// agree reports whether a and b are equal, or one of them is unknown.
func agree(a, b string) bool { return a == "" || b == "" || a == b }

// Host validates what a Machine of sm reports about its host. Every controller that needs the Node of a Machine
// uses it. It reads other Machines only if the report is not accepted yet.
func (r Reader) Host(ctx context.Context, sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine) (Host, error) {
	if m == nil {
		return Host{}, nil
	}
	c := ingest.Claim{
		Name: m.Name, Reported: reportedHost(m), Known: Known(sm, m),
		Running: m.Status.Phase == string(clusterv1.MachinePhaseRunning) && m.DeletionTimestamp.IsZero(),
	}
	var err error
	if c.Reported.Node != "" && c.Known.Node == "" {
		if c.NodeOf, err = r.other(ctx, m, index.MachineNodeNameField, c.Reported.Node); err != nil {
			return Host{}, err
		}
	}
	if c.Reported.ProviderID != "" && c.Known.ProviderID == "" {
		if c.ProviderIDOf, err = r.other(ctx, m, index.MachineProviderIDField, c.Reported.ProviderID); err != nil {
			return Host{}, err
		}
	}
	h := Host{Reported: c.Reported}
	h.Host, h.Rejected = ingest.Screen(c)
	return h, nil
}

// Unscreened returns what was accepted for the host of a Machine before, otherwise its report. It is for an
// owner's request, which does not wait for the validation.
func Unscreened(sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine) Host {
	if m == nil {
		return Host{}
	}
	known, says := Known(sm, m), reportedHost(m)
	return Host{Reported: says, Host: ingest.Host{
		Node: cmp.Or(known.Node, says.Node), ProviderID: cmp.Or(known.ProviderID, says.ProviderID), MachineID: known.MachineID,
	}}
}

// reportedHost returns what a Machine reports about its host.
func reportedHost(m *clusterv1.Machine) ingest.Host {
	h := ingest.Host{Node: m.Status.NodeRef.Name, ProviderID: m.Spec.ProviderID}
	if info := m.Status.NodeInfo; info != nil {
		h.MachineID = info.MachineID
	}
	return h
}

// Known returns what was accepted for the host of this Machine, according to the status of sm. It identifies
// the Machine by UID, which clients cannot change.
func Known(sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine) ingest.Host {
	st := sm.Status
	if m == nil || st.MachineRef == nil || st.MachineRef.UID != m.UID {
		return ingest.Host{}
	}
	h := ingest.Host{ProviderID: st.ProviderID}
	if st.NodeRef != nil {
		h.Node, h.MachineID = st.NodeRef.Name, st.NodeRef.MachineID
	}
	return h
}

// other returns the first other Machine of the Cluster, by name, that the index has for a value. It includes
// Machines that 5-Spot did not make. It is empty if there is none.
func (r Reader) other(ctx context.Context, m *clusterv1.Machine, field, value string) (string, error) {
	list := &clusterv1.MachineList{}
	if err := r.Cached.List(ctx, list, client.InNamespace(m.Namespace), client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("looking for other Machines of the same host: %w", err)
	}
	first := ""
	for i := range list.Items {
		o := &list.Items[i]
		if o.Name != m.Name && o.Spec.ClusterName == m.Spec.ClusterName && (first == "" || cmp.Less(o.Name, first)) {
			first = o.Name
		}
	}
	return first, nil
}

// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
)

// A Host is what a Machine says of its host, and what of that is believed. The zero value is
// that of no Machine.
type Host struct {
	// Host is what is believed. An empty part is unknown, and never gone.
	ingest.Host
	// Says is what the Machine says.
	Says ingest.Host
	// Rejected is what is not believed.
	Rejected []ingest.Rejection
}

// Doubtful reports whether the Machine names a Node that is not believed, and none is.
func (h Host) Doubtful() bool { return h.Node == "" && h.Says.Node != "" }

// Doubt is why the Node that the Machine names is not believed, empty unless none is.
func (h Host) Doubt() string {
	if !h.Doubtful() {
		return ""
	}
	for _, r := range h.Rejected {
		if r.Reason == ingest.NodeRef {
			return r.Message
		}
	}
	return ""
}

// Host screens what a Machine of sm says of its host. Everybody who looks for its Node asks
// here. Where the same was believed before, nothing is read.
func (r Reader) Host(ctx context.Context, sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine) (Host, error) {
	if m == nil {
		return Host{}, nil
	}
	c := ingest.Claim{
		Name: m.Name, Says: saysOf(m), Known: Known(sm, m),
		Running: m.Status.Phase == string(clusterv1.MachinePhaseRunning) && m.DeletionTimestamp.IsZero(),
	}
	var err error
	if c.Says.Node != "" && c.Known.Node == "" {
		if c.NodeOf, err = r.other(ctx, m, index.MachineNodeNameField, c.Says.Node); err != nil {
			return Host{}, err
		}
	}
	if c.Says.ProviderID != "" && c.Known.ProviderID == "" {
		if c.ProviderIDOf, err = r.other(ctx, m, index.MachineProviderIDField, c.Says.ProviderID); err != nil {
			return Host{}, err
		}
	}
	h := Host{Says: c.Says}
	h.Host, h.Rejected = ingest.Screen(c)
	return h, nil
}

// Unscreened is what was believed of the host of a Machine before, and else what it says: for an
// owner, who does not wait until it is known what others say.
func Unscreened(sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine) Host {
	if m == nil {
		return Host{}
	}
	known, says := Known(sm, m), saysOf(m)
	return Host{Says: says, Host: ingest.Host{
		Node: cmp.Or(known.Node, says.Node), ProviderID: cmp.Or(known.ProviderID, says.ProviderID), MachineID: known.MachineID,
	}}
}

// saysOf is what a Machine says of its host.
func saysOf(m *clusterv1.Machine) ingest.Host {
	h := ingest.Host{Node: m.Status.NodeRef.Name, ProviderID: m.Spec.ProviderID}
	if info := m.Status.NodeInfo; info != nil {
		h.MachineID = info.MachineID
	}
	return h
}

// Known is what was believed of the host of this very Machine, as the status has it. Nothing that
// anybody can write on the Machine says which one it is.
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

// other returns the first in the alphabet of the other Machines of the Cluster that the index
// has for a value, empty if there is none: also of those that are not ours.
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

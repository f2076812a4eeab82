// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
)

// HostIndex is the cache index of ScheduledMachines by the names of their hosts, across all namespaces.
const HostIndex = "host"

// maxHostName is the longest accepted name of a host, the limit of status.providerID. A longer name is ignored.
// maxWritten is the longest JSON form of such a name.
const (
	maxHostName = 512
	maxWritten  = 6*maxHostName + len(`""`)
)

// HostKeys returns the values of HostIndex for an object.
func HostKeys(obj client.Object) []string {
	sm, ok := obj.(*v1alpha1.ScheduledMachine)
	if !ok {
		return nil
	}
	var keys []string
	for _, id := range slices.Concat(specHostIDs(sm), statusHostIDs(sm)) {
		if key := id.Key(); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// namer converts fields of a provider's spec and of Cluster API objects to names of a host.
type namer struct {
	sm   *v1alpha1.ScheduledMachine
	kind schema.GroupKind
}

// id returns one name of a host; none if the value is empty or too long. The scope is where the name is unique. An
// address is unique per kind of infrastructure machine, across Clusters: the provider connects to it from one network.
// A provider ID is unique per namespace, because providers reuse IDs in others. A Node name is unique per Cluster.
func (n namer) id(kind hosts.Kind, value string) []hosts.ID {
	if len(value) > maxWritten {
		return nil
	}
	value = clip.Line(value)
	if value == "" || len(value) > maxHostName {
		return nil
	}
	id := hosts.ID{Kind: kind, Value: value}
	switch kind {
	case hosts.Address:
		id.Scope = n.kind.String()
	case hosts.ProviderID:
		id.Scope = n.sm.Namespace
	case hosts.NodeName:
		id.Scope = n.sm.Namespace + "/" + n.sm.Spec.ClusterName
	case hosts.MachineID:
	}
	return []hosts.ID{id}
}

// ofSpec reads the fields in which a provider's spec names the host.
func (n namer) ofSpec(spec map[string]any) []hosts.ID {
	text := func(field string) string { s, _ := spec[field].(string); return s }
	return slices.Concat(
		n.id(hosts.Address, address(text("address"), spec["port"])),
		n.id(hosts.ProviderID, text("providerID")),
		n.id(hosts.NodeName, text("nodeName")),
	)
}

// address returns host and port in a canonical form. Two ports of one address may be two hosts behind it. The default
// port is 22, as for providers that connect by SSH.
func address(host string, port any) string {
	host = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(host)), ".")
	if host == "" {
		return ""
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		host = ip.Unmap().String()
		if ip.Unmap().Is6() {
			host = "[" + host + "]"
		}
	}
	if port == nil || fmt.Sprint(port) == "0" {
		port = 22
	}
	return fmt.Sprintf("%s:%v", host, port)
}

// ofWords parses names that hosts.ID.String wrote.
func (n namer) ofWords(words []string) []hosts.ID {
	var ids []hosts.ID
	for _, word := range words {
		kind, value, _ := strings.Cut(word, " ")
		ids = append(ids, n.id(hosts.Kind(kind), value)...)
	}
	return ids
}

// namedFields are the fields of a spec that name a host. Decoding skips all other fields, because a spec may be as
// large as the API server allows.
type namedFields struct {
	Address    json.RawMessage `json:"address"`
	Port       json.RawMessage `json:"port"`
	ProviderID json.RawMessage `json:"providerID"`
	NodeName   json.RawMessage `json:"nodeName"`
}

// spec decodes the fields that are short enough for a name or a port.
func (f namedFields) spec() map[string]any {
	spec := map[string]any{}
	for field, raw := range map[string]json.RawMessage{"address": f.Address, "port": f.Port, "providerID": f.ProviderID, "nodeName": f.NodeName} {
		var value any
		if len(raw) > 0 && len(raw) <= maxWritten && utiljson.Unmarshal(raw, &value) == nil {
			spec[field] = value
		}
	}
	return spec
}

// specHostIDs returns the names of the host in the spec. For a template it returns the names that status recorded when
// the template was last read, none before that.
func specHostIDs(sm *v1alpha1.ScheduledMachine) []hosts.ID {
	n := namer{sm, children.InfrastructureOf(sm).Kind().GroupKind()}
	if cloned(sm) {
		if st := sm.Status.Host; st != nil && len(st.Wanted) > 0 && st.Wanted[0] == source(sm) {
			return n.ofWords(st.Wanted[1:])
		}
		return nil
	}
	var spec namedFields
	// This decoder is case-sensitive. encoding/json would accept ADDRESS for address, which no provider reads.
	if utiljson.Unmarshal(sm.Spec.InfrastructureSpec.Spec.Raw, &spec) != nil {
		return nil
	}
	return n.ofSpec(spec.spec())
}

// cloned reports whether the infrastructure machine is made from a template.
func cloned(sm *v1alpha1.ScheduledMachine) bool {
	return sm.Spec.InfrastructureTemplateRef != (v1alpha1.TemplateReference{})
}

// source identifies the origin of the names: the kind of the infrastructure machine, or its template. Names of another
// source belong to another host.
func source(sm *v1alpha1.ScheduledMachine) string {
	if ref := sm.Spec.InfrastructureTemplateRef; cloned(sm) {
		return "template " + schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind().String() + "/" + ref.Name
	}
	return "kind " + children.InfrastructureOf(sm).Kind().GroupKind().String()
}

// inWords returns the source and the names, as status.host.wanted stores them.
func inWords(sm *v1alpha1.ScheduledMachine, ids []hosts.ID) []string {
	if len(ids) == 0 {
		return nil
	}
	words := []string{source(sm)}
	for _, id := range ids {
		words = append(words, id.String())
	}
	return words
}

// sameHost reports whether a and b name the same host. For a template it ignores provider IDs.
func sameHost(sm *v1alpha1.ScheduledMachine, a, b []string) bool {
	if cloned(sm) {
		isID := func(word string) bool { return strings.HasPrefix(word, string(hosts.ProviderID)+" ") }
		a, b = slices.DeleteFunc(slices.Clone(a), isID), slices.DeleteFunc(slices.Clone(b), isID)
	}
	return slices.Equal(a, b)
}

// byAuthor removes provider IDs: the provider of a clone sets them, not the template.
func byAuthor(ids []hosts.ID) []hosts.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id hosts.ID) bool { return id.Kind == hosts.ProviderID })
}

// since returns when sm first named this host. Zero means unknown, and orders after all known times. The creation time
// is used only if the spec has not been edited since, and not for a template, whose content may have changed.
func since(sm *v1alpha1.ScheduledMachine, ids []hosts.ID) time.Time {
	st := sm.Status
	isNew := st.ObservedGeneration == 0 && sm.Generation <= 1 // It is new, or its status was lost, as in clusterctl move.
	switch {
	case st.Host != nil && st.Host.Since != nil && sameHost(sm, st.Host.Wanted, inWords(sm, ids)):
		return st.Host.Since.Time
	case st.Host == nil && !cloned(sm) && (isNew || st.ObservedGeneration > 0 && st.ObservedGeneration == sm.Generation):
		return sm.CreationTimestamp.Time // It is new, or its status is from a version that did not record it.
	default:
		return time.Time{}
	}
}

// statusHostIDs returns the names of the host that sm uses according to its status. It returns none if status has
// neither a Machine nor infrastructure.
func statusHostIDs(sm *v1alpha1.ScheduledMachine) []hosts.ID {
	st := sm.Status
	if st.MachineRef == nil && st.InfrastructureRef == nil {
		return nil
	}
	n := namer{sm: sm}
	if ref := st.InfrastructureRef; ref != nil {
		n.kind = schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	}
	ids := n.id(hosts.ProviderID, st.ProviderID)
	if st.Host != nil {
		ids = slices.Concat(ids, n.ofWords(st.Host.InUse))
	}
	if st.NodeRef != nil {
		ids = slices.Concat(ids, n.id(hosts.NodeName, st.NodeRef.Name), n.id(hosts.MachineID, st.NodeRef.MachineID))
	}
	return ids
}

// ofMachine returns the names of a Machine's host. Where ingest accepted no value, it returns the reported value, so
// that several ScheduledMachines that name one host find each other.
func (n namer) ofMachine(h children.Host) []hosts.ID {
	return slices.Concat(n.id(hosts.ProviderID, cmp.Or(h.ProviderID, h.Reported.ProviderID)),
		n.id(hosts.NodeName, cmp.Or(h.Node, h.Reported.Node)), n.id(hosts.MachineID, h.MachineID))
}

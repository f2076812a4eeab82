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

// HostIndex finds in the cache the ScheduledMachines that name a host, in all namespaces.
const HostIndex = "host"

// maxHostName bounds a name of a host: a longer one is not known. It is that of
// status.providerID. maxWritten is as long as one may be written in JSON.
const (
	maxHostName = 512
	maxWritten  = 6*maxHostName + len(`""`)
)

// HostKeys are the values of HostIndex.
func HostKeys(obj client.Object) []string {
	sm, ok := obj.(*v1alpha1.ScheduledMachine)
	if !ok {
		return nil
	}
	var keys []string
	for _, id := range slices.Concat(wants(sm), inUse(sm)) {
		if key := id.Key(); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// namer says what a provider's spec, and what Cluster API reports, call a host.
type namer struct {
	sm   *v1alpha1.ScheduledMachine
	kind schema.GroupKind
}

// id is one name of a host, and nothing for a name that is empty or too long. An address
// counts for a kind, because one provider reaches it from one place, whatever the Cluster;
// a provider's ID in a namespace, because providers repeat them in others; a Node's name
// in its Cluster.
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

// ofSpec reads the fields by which providers let an author name a host.
func (n namer) ofSpec(spec map[string]any) []hosts.ID {
	text := func(field string) string { s, _ := spec[field].(string); return s }
	return slices.Concat(
		n.id(hosts.Address, address(text("address"), spec["port"])),
		n.id(hosts.ProviderID, text("providerID")),
		n.id(hosts.NodeName, text("nodeName")),
	)
}

// address is a host and a port, written in one way. Two ports of one address may be two
// hosts behind it. Without one it is that of SSH, as for the providers that log in.
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

// ofWords reads what String wrote.
func (n namer) ofWords(words []string) []hosts.ID {
	var ids []hosts.ID
	for _, word := range words {
		kind, value, _ := strings.Cut(word, " ")
		ids = append(ids, n.id(hosts.Kind(kind), value)...)
	}
	return ids
}

// namedFields are those of a spec that name a host. All else in it is skipped: it may be as
// large as the API server allows.
type namedFields struct {
	Address    json.RawMessage `json:"address"`
	Port       json.RawMessage `json:"port"`
	ProviderID json.RawMessage `json:"providerID"`
	NodeName   json.RawMessage `json:"nodeName"`
}

// spec is what can be a name, or a port.
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

// wants are the names of the host in the spec. Of a template they are what was in it when
// it was last read; before, they are not known.
func wants(sm *v1alpha1.ScheduledMachine) []hosts.ID {
	n := namer{sm, children.InfrastructureOf(sm).Kind().GroupKind()}
	if cloned(sm) {
		if st := sm.Status.Host; st != nil && len(st.Wanted) > 0 && st.Wanted[0] == source(sm) {
			return n.ofWords(st.Wanted[1:])
		}
		return nil
	}
	var spec namedFields
	// The standard library does not tell address from ADDRESS, which no provider reads.
	if utiljson.Unmarshal(sm.Spec.InfrastructureSpec.Spec.Raw, &spec) != nil {
		return nil
	}
	return n.ofSpec(spec.spec())
}

// cloned reports whether the infrastructure machine is made from a template.
func cloned(sm *v1alpha1.ScheduledMachine) bool {
	return sm.Spec.InfrastructureTemplateRef != (v1alpha1.TemplateReference{})
}

// source is what the names of the host are for: the kind of the infrastructure machine, or
// its template. With another they are those of another host.
func source(sm *v1alpha1.ScheduledMachine) string {
	if ref := sm.Spec.InfrastructureTemplateRef; cloned(sm) {
		return "template " + schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind().String() + "/" + ref.Name
	}
	return "kind " + children.InfrastructureOf(sm).Kind().GroupKind().String()
}

// inWords is what status says of how the spec names the host.
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

// sameHost reports whether the words are the same, of a template but for a provider's ID.
func sameHost(sm *v1alpha1.ScheduledMachine, a, b []string) bool {
	if cloned(sm) {
		isID := func(word string) bool { return strings.HasPrefix(word, string(hosts.ProviderID)+" ") }
		a, b = slices.DeleteFunc(slices.Clone(a), isID), slices.DeleteFunc(slices.Clone(b), isID)
	}
	return slices.Equal(a, b)
}

// byAuthor are those of a clone's names that are its template's. Its provider gives it an ID.
func byAuthor(ids []hosts.ID) []hosts.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id hosts.ID) bool { return id.Kind == hosts.ProviderID })
}

// since is when sm began to name its host so; zero is after all others. Whoever was edited
// before anybody looked at it did not name it when it was created, and a template may say
// something else than it did then.
func since(sm *v1alpha1.ScheduledMachine, ids []hosts.ID) time.Time {
	st := sm.Status
	isNew := st.ObservedGeneration == 0 && sm.Generation <= 1 // Or its status was lost, as in clusterctl move.
	switch {
	case st.Host != nil && st.Host.Since != nil && sameHost(sm, st.Host.Wanted, inWords(sm, ids)):
		return st.Host.Since.Time
	case st.Host == nil && !cloned(sm) && (isNew || st.ObservedGeneration > 0 && st.ObservedGeneration == sm.Generation):
		return sm.CreationTimestamp.Time // It is new, or of a version that did not write it down.
	default:
		return time.Time{}
	}
}

// inUse are the names of the host that sm has, as its status tells. While nothing of a
// machine is there, there are none.
func inUse(sm *v1alpha1.ScheduledMachine) []hosts.ID {
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

// ofMachine is what the host of a Machine is called. Where nothing is believed it is what the
// Machine says: several that name one host are to see each other.
func (n namer) ofMachine(h children.Host) []hosts.ID {
	return slices.Concat(n.id(hosts.ProviderID, cmp.Or(h.ProviderID, h.Says.ProviderID)),
		n.id(hosts.NodeName, cmp.Or(h.Node, h.Says.Node)), n.id(hosts.MachineID, h.MachineID))
}

// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	sm := obj.(*v1alpha1.ScheduledMachine)
	var keys []string
	for _, id := range claimOf(sm, wantedNames(sm)).IDs() {
		keys = append(keys, id.Key())
	}
	return keys
}

// claimOf returns the claim of sm on the host with the wanted names. The status has the names in use.
func claimOf(sm *v1alpha1.ScheduledMachine, wanted []hosts.ID) hosts.Claim {
	c := hosts.Claim{
		Namespace: sm.Namespace, Name: sm.Name, Wants: wanted, Has: namesInUse(sm), Since: since(sm, wanted),
		Created: sm.CreationTimestamp.Time, Request: requestDigest(sm),
	}
	if sm.Status.MachineRef != nil && sm.Status.LastScheduledTime != nil {
		c.MadeAt = sm.Status.LastScheduledTime.Time
	}
	return c
}

// wantedNames returns the names of the host in the spec. For a template it returns the names that status recorded when
// the template was last read, none before that.
func wantedNames(sm *v1alpha1.ScheduledMachine) []hosts.ID {
	if cloned(sm) {
		if h := sm.Status.Host; h != nil && h.Source == source(sm) {
			return idsOf(h.Names)
		}
		return nil
	}
	// This decoder is case-sensitive. encoding/json would accept ADDRESS for address, which no provider reads.
	var fields map[string]json.RawMessage // Only the short ones are decoded: a spec may be as large as the API server allows.
	if utiljson.Unmarshal(sm.Spec.InfrastructureSpec.Spec.Raw, &fields) != nil {
		return nil
	}
	spec := map[string]any{}
	for _, field := range []string{"address", "port", "providerID", "nodeName"} {
		var value any
		if raw := fields[field]; len(raw) > 0 && len(raw) <= maxWritten && utiljson.Unmarshal(raw, &value) == nil {
			spec[field] = value
		}
	}
	return namesInSpec(sm, children.InfrastructureOf(sm).Kind(), spec)
}

// namesInUse returns the names of the host that sm uses according to its status.
func namesInUse(sm *v1alpha1.ScheduledMachine) []hosts.ID {
	if sm.Status.Host == nil {
		return nil
	}
	return idsOf(sm.Status.Host.MachineNames)
}

// namesInObject returns the names of the host in an infrastructure machine.
func namesInObject(sm *v1alpha1.ScheduledMachine, infra *unstructured.Unstructured) []hosts.ID {
	spec, _ := infra.Object["spec"].(map[string]any)
	return namesInSpec(sm, infra.GroupVersionKind(), spec)
}

// namesInSpec returns the names of the host in the spec of an infrastructure machine. An address is unique per kind,
// across Clusters: the provider connects to it from one network.
func namesInSpec(sm *v1alpha1.ScheduledMachine, kind schema.GroupVersionKind, spec map[string]any) []hosts.ID {
	text := func(field string) string { s, _ := spec[field].(string); return s }
	return validIDs(
		hosts.ID{Kind: hosts.Address, Scope: kind.GroupKind().String(), Value: address(text("address"), spec["port"])},
		providerID(sm, text("providerID")), nodeName(sm, text("nodeName")),
	)
}

// namesOfMachine returns the names of a Machine's host. Where ingest accepted no value, it returns the reported value,
// so that several ScheduledMachines that name one host find each other.
func namesOfMachine(sm *v1alpha1.ScheduledMachine, h children.Host) []hosts.ID {
	return validIDs(
		providerID(sm, cmp.Or(h.ProviderID, h.Reported.ProviderID)), nodeName(sm, cmp.Or(h.Node, h.Reported.Node)),
		hosts.ID{Kind: hosts.MachineID, Value: h.MachineID},
	)
}

// providerID returns a provider ID, which is unique per namespace, because providers reuse IDs in others.
func providerID(sm *v1alpha1.ScheduledMachine, value string) hosts.ID {
	return hosts.ID{Kind: hosts.ProviderID, Scope: sm.Namespace, Value: value}
}

// nodeName returns the name of a Node, which is unique per Cluster.
func nodeName(sm *v1alpha1.ScheduledMachine, value string) hosts.ID {
	return hosts.ID{Kind: hosts.NodeName, Scope: sm.Namespace + "/" + sm.Spec.ClusterName, Value: value}
}

// validIDs cleans the values of ids, and drops the empty and the too long ones.
func validIDs(ids ...hosts.ID) []hosts.ID {
	var valid []hosts.ID
	for _, id := range ids {
		if len(id.Value) > maxWritten {
			continue
		}
		if id.Value = clip.Line(id.Value); id.Value != "" && len(id.Value) <= maxHostName {
			valid = append(valid, id)
		}
	}
	return valid
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

// idsOf returns names that the API stores.
func idsOf(names []v1alpha1.HostName) []hosts.ID {
	var ids []hosts.ID
	for _, name := range names {
		ids = append(ids, hosts.ID(name))
	}
	return ids
}

// hostNames returns the ids as the API stores them, each once, up to a limit.
func hostNames(ids []hosts.ID, limit int) []v1alpha1.HostName {
	var names []v1alpha1.HostName
	for _, id := range ids {
		if name := v1alpha1.HostName(id); len(names) < limit && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
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

// withoutProviderIDs removes the provider IDs of an existing infrastructure machine. Its provider sets them, and the
// Machine reports them.
func withoutProviderIDs(ids []hosts.ID) []hosts.ID {
	return slices.DeleteFunc(ids, func(id hosts.ID) bool { return id.Kind == hosts.ProviderID })
}

// since returns when sm first named this host. Zero means unknown, and orders after all known times. A status counts if
// it has all names of the spec. The creation time counts only for a new object: an edit may have changed the spec since.
func since(sm *v1alpha1.ScheduledMachine, wanted []hosts.ID) time.Time {
	st := sm.Status
	known := func(id hosts.ID) bool {
		return cloned(sm) && id.Kind == hosts.ProviderID || slices.Contains(st.Host.Names, v1alpha1.HostName(id))
	}
	switch {
	case st.Host == nil && st.ObservedGeneration == 0 && sm.Generation <= 1 && !cloned(sm): // Also if its status was lost, as in clusterctl move.
		return sm.CreationTimestamp.Time
	case st.Host == nil || st.Host.ClaimTime == nil || st.Host.Source != source(sm):
		return time.Time{}
	case slices.ContainsFunc(wanted, func(id hosts.ID) bool { return !known(id) }):
		return time.Time{}
	default:
		return st.Host.ClaimTime.Time
	}
}

// requestDigest identifies the owner's request that sm received itself; empty without one. It covers no field that is
// added later: package reclaim adds the times of a person's request.
func requestDigest(sm *v1alpha1.ScheduledMachine) string {
	record, reclaimed := sm.Reclaimed()
	if !reclaimed || record.PropagatedFrom != "" {
		return ""
	}
	times := sm.Annotations[v1alpha1.ReclaimTimesAnnotation]
	if record.ByPerson() {
		times = ""
	}
	return digest([]string{fmt.Sprintln(sm.UID, record.Node, record.NodeUID, record.RequestedAt, times)})
}

// digest returns a hash of the words that does not depend on their order; empty for no words.
func digest(words []string) string {
	if len(words) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(words)), "\n")))
	return hex.EncodeToString(sum[:8])
}

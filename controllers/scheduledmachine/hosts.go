// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
)

// HostIndex finds in the cache the ScheduledMachines that name a host, in all namespaces.
const HostIndex = "host"

// maxHostName bounds a name of a host: a longer one is not known. It is that of
// status.providerID.
const maxHostName = 512

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

// wants are the names of the host in the spec. What is inside a template is not known
// before something is made from it.
func wants(sm *v1alpha1.ScheduledMachine) []hosts.ID {
	var spec map[string]any
	if json.Unmarshal(sm.Spec.InfrastructureSpec.Spec.Raw, &spec) != nil {
		return nil
	}
	return namer{sm, children.InfrastructureOf(sm).Kind().GroupKind()}.ofSpec(spec)
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
		for _, s := range st.Host.InUse {
			kind, value, _ := strings.Cut(s, " ")
			ids = append(ids, n.id(hosts.Kind(kind), value)...)
		}
	}
	if st.NodeRef != nil {
		ids = slices.Concat(ids, n.id(hosts.NodeName, st.NodeRef.Name), n.id(hosts.MachineID, st.NodeRef.MachineID))
	}
	return ids
}

// host is what the object says of its host, and where it stands among those that name it,
// too.
type host struct {
	hosts.Verdict

	mine hosts.Claim
	// asked are requests of the host's owner that others were told of.
	asked []v1alpha1.ReclaimRecord
	// told says which requests these are.
	told string
}

// observeHost finds out who else names the host.
func (r *Reconciler) observeHost(ctx context.Context, s *scope) error {
	s.host = host{mine: s.claim()}
	taken := r.hosts.Taken(client.ObjectKeyFromObject(s.scheduled).String(), s.host.mine.Wants)
	s.host.mine.Has = append(s.host.mine.Has, taken...)
	rivals, err := r.rivals(ctx, s.scheduled, slices.Concat(s.host.mine.Wants, s.host.mine.Has))
	if err != nil {
		return err
	}
	claims := make([]hosts.Claim, len(rivals))
	for i, sm := range rivals {
		if claims[i], err = r.claimOf(ctx, sm); err != nil {
			return err
		}
	}
	s.host.Verdict = hosts.Judge(s.host.mine, claims)
	for _, c := range hosts.Asked(s.host.mine, claims) {
		i := slices.IndexFunc(rivals, func(sm *v1alpha1.ScheduledMachine) bool { return sm.Namespace == c.Namespace && sm.Name == c.Name })
		record, _ := rivals[i].Reclaimed()
		s.host.asked = append(s.host.asked, v1alpha1.ReclaimRecord{Reason: record.Reason, RequestedAt: record.RequestedAt, Of: c.Name})
		// What says which request it is, and nothing that is added when it is served.
		s.host.told += fmt.Sprintln(rivals[i].UID, record.Node, record.NodeUID, record.RequestedAt, rivals[i].Annotations[v1alpha1.ReclaimTimesAnnotation])
	}
	return nil
}

// manyImages is how many have the same machine ID where nobody means a host: they were
// made from one image.
const manyImages = 8

// rivals are the other ScheduledMachines that have one of the IDs, those of other
// namespaces and of other managers among them: a host is one host. They must not be
// changed.
func (r *Reconciler) rivals(ctx context.Context, sm *v1alpha1.ScheduledMachine, ids []hosts.ID) ([]*v1alpha1.ScheduledMachine, error) {
	seen := map[client.ObjectKey]bool{client.ObjectKeyFromObject(sm): true}
	var rivals []*v1alpha1.ScheduledMachine
	for _, id := range ids {
		list := &v1alpha1.ScheduledMachineList{}
		if err := r.Reader.List(ctx, list, client.MatchingFields{HostIndex: id.Key()}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("looking for others of the same host: %w", err)
		}
		if id.Kind == hosts.MachineID && len(list.Items) > manyImages {
			continue
		}
		for i := range list.Items {
			if rival := &list.Items[i]; !seen[client.ObjectKeyFromObject(rival)] {
				seen[client.ObjectKeyFromObject(rival)] = true
				rivals = append(rivals, rival)
			}
		}
	}
	return rivals, nil
}

// claim is the object's own, of what there is now.
func (s *scope) claim() hosts.Claim {
	sm, c := s.scheduled, claimOf(s.scheduled)
	c.Has, c.MadeAt = nil, time.Time{}
	infra, m := s.children.Infrastructure, s.children.Machine
	n := namer{sm: sm}
	if infra != nil {
		n.kind = infra.GroupVersionKind().GroupKind()
		spec, _ := infra.Object["spec"].(map[string]any)
		c.Has = n.ofSpec(spec)
	}
	if m != nil {
		c.Has = slices.Concat(c.Has, n.id(hosts.ProviderID, m.Spec.ProviderID), n.ofNode(m))
		c.MadeAt = children.CreatedAt(m).Truncate(time.Second)
	}
	if infra == nil && (m != nil || s.children.InfrastructureUnknown) {
		c.Has = append(c.Has, inUse(sm)...) // Unknown is not absent.
	}
	return c
}

// ofNode is what the Node of a Machine is called. Of its host the first answer counts, as
// in status.nodeRef.
func (n namer) ofNode(m *clusterv1.Machine) []hosts.ID {
	if !m.Status.NodeRef.IsDefined() {
		return nil
	}
	ref := nodeReference(m)
	if first := n.sm.Status.NodeRef; first != nil && first.Name == ref.Name && first.MachineID != "" {
		ref = first
	}
	return slices.Concat(n.id(hosts.NodeName, ref.Name), n.id(hosts.MachineID, ref.MachineID))
}

// claimOf is what another ScheduledMachine says of its host.
func (r *Reconciler) claimOf(ctx context.Context, sm *v1alpha1.ScheduledMachine) (hosts.Claim, error) {
	c := claimOf(sm)
	taken := r.hosts.Taken(client.ObjectKeyFromObject(sm).String(), c.Wants)
	if len(taken) == 0 && sm.Status.ObservedGeneration == 0 { // Its status was lost, as in clusterctl move, or it is new.
		m, err := r.Children.Machine(ctx, sm)
		if err != nil {
			return hosts.Claim{}, err
		}
		if m != nil {
			taken = c.Wants
		}
	}
	c.Has = append(c.Has, taken...)
	return c, nil
}

// claimOf is what the object itself shows of its claim.
func claimOf(sm *v1alpha1.ScheduledMachine) hosts.Claim {
	record, reclaimed := sm.Reclaimed()
	c := hosts.Claim{
		Namespace: sm.Namespace, Name: sm.Name, Wants: wants(sm), Has: inUse(sm),
		Created: sm.CreationTimestamp.Time, Owner: reclaimed && record.Of == "",
	}
	if sm.Status.MachineRef != nil && sm.Status.LastScheduledTime != nil {
		c.MadeAt = sm.Status.LastScheduledTime.Time
	}
	switch st := sm.Status; {
	case st.Host != nil && st.Host.Since != nil && slices.Equal(st.Host.Wanted, inWords(c.Wants)):
		c.Since = st.Host.Since.Time
	case st.Host == nil && (st.ObservedGeneration == 0 || st.ObservedGeneration == sm.Generation):
		c.Since = c.Created // It is new, or its status was lost or is of a version without it.
	}
	return c
}

func inWords(ids []hosts.ID) []string {
	var words []string
	for _, id := range ids {
		words = append(words, id.String())
	}
	return words
}

// second reports whether nothing may be made on the host.
func (h host) second() bool { return h.Standing >= hosts.Second }

// reportHost writes how the host is named, and since when.
func (s *scope) reportHost(now time.Time) {
	h := v1alpha1.HostStatus{Wanted: inWords(s.host.mine.Wants)}
	if infra := s.children.Infrastructure; infra != nil {
		spec, _ := infra.Object["spec"].(map[string]any)
		for _, id := range (namer{sm: s.scheduled}).ofSpec(spec) {
			if id.Kind != hosts.ProviderID { // It is in the status already.
				h.InUse = append(h.InUse, id.String())
			}
		}
	}
	if len(h.Wanted) > 0 {
		since := s.host.mine.Since
		if since.IsZero() {
			since = now
		}
		h.Since = new(metav1.NewTime(since.UTC().Truncate(time.Second)))
	}
	s.scheduled.Status.Host = nil
	if len(h.Wanted) > 0 || len(h.InUse) > 0 {
		s.scheduled.Status.Host = &h
	}
}

// passOn writes down on this object, too, that the owner has the host, or asks for it:
// whoever lends the same host must not take it again, and still knows when the other is
// gone. Package reclaim does the rest. Each request is told once: a person may turn the
// schedule on, and nothing is made while the owner has the host.
func (r *Reconciler) passOn(ctx context.Context, s *scope) (bool, error) {
	sm := s.scheduled
	if len(s.host.asked) == 0 {
		return false, nil
	}
	sum := sha256.Sum256([]byte(s.host.told))
	told := hex.EncodeToString(sum[:8])
	if _, reclaimed := sm.Reclaimed(); reclaimed || sm.Annotations[v1alpha1.HostReclaimedAnnotation] == told {
		return false, nil
	}
	before := sm.DeepCopy()
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, s.host.asked[0].String())
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.HostReclaimedAnnotation, told)
	if err := r.Actuate.PatchLocked(ctx, sm, before); err != nil {
		return false, fmt.Errorf("passing request of the host's owner on: %w", err)
	}
	r.announcePassedOn(sm, s.host.asked[0])
	return true, nil
}

// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
)

// host has the standing of the object among all ScheduledMachines that name the same host.
type host struct {
	hosts.Verdict

	mine hosts.Claim
	// others are the claims of the other ScheduledMachines.
	others []hosts.Claim
	// asked is a request of the host's owner that another ScheduledMachine received. requestsDigest is a digest of all
	// such requests, empty if there are none.
	asked          v1alpha1.ReclaimRecord
	requestsDigest string
}

// observeHost lists the other ScheduledMachines that name the host, and judges the claims.
func (r *Reconciler) observeHost(ctx context.Context, s *scope) error {
	now := r.Clock.Now()
	s.host = host{mine: s.claim(r.claims.of(s.scheduled).claim)}
	taken := r.hosts.Taken(client.ObjectKeyFromObject(s.scheduled).String(), s.host.mine.Wants, now)
	s.host.mine.Has = slices.Concat(s.host.mine.Has, taken)
	sharing, err := r.sharingHost(ctx, s.scheduled, s.host.mine.IDs())
	if err != nil {
		return err
	}
	said := map[client.ObjectKey]claim{}
	for _, sm := range sharing {
		c, err := r.claimOf(ctx, sm, now)
		if err != nil {
			return err
		}
		if c.request != "" {
			said[client.ObjectKeyFromObject(sm)] = c
		}
		s.host.others = append(s.host.others, c.claim)
	}
	var kept []hosts.Claim
	if len(s.host.mine.IDs()) > 0 {
		if kept, err = r.remembered(ctx, s.scheduled, s.host.mine.Since); err != nil {
			return err
		}
	}
	s.host.Verdict = hosts.Judge(s.host.mine, slices.Concat(s.host.others, kept))
	var requests []string
	for _, c := range hosts.ReclaimedByOwner(s.host.mine, s.host.others) {
		who := said[client.ObjectKey{Namespace: c.Namespace, Name: c.Name}]
		requests = append(requests, who.request)
		if s.host.asked.Of == "" || c.Name < s.host.asked.Of {
			s.host.asked = v1alpha1.ReclaimRecord{Reason: who.record.Reason, RequestedAt: who.record.RequestedAt, Of: c.Name}
		}
	}
	s.host.requestsDigest = digest(requests)
	return nil
}

// manyImages is the largest number of ScheduledMachines with one machine ID that is still evaluated. A larger number
// means copies of one image, not one host.
const manyImages = 8

// sharingHost returns the other ScheduledMachines that have one of the IDs.
func (r *Reconciler) sharingHost(ctx context.Context, sm *v1alpha1.ScheduledMachine, ids []hosts.ID) ([]*v1alpha1.ScheduledMachine, error) {
	seen := map[client.ObjectKey]bool{}
	var sharingHost []*v1alpha1.ScheduledMachine
	for _, id := range ids {
		named, err := r.listByHostID(ctx, sm, id)
		if err != nil {
			return nil, err
		}
		for _, rival := range named {
			key := client.ObjectKeyFromObject(rival)
			if seen[key] {
				continue
			}
			if len(ids) > 1 {
				seen[key] = true
			}
			sharingHost = append(sharingHost, rival)
		}
	}
	return sharingHost, nil
}

// listByHostID returns the ScheduledMachines that have an ID, except the one with the name of obj. It includes other
// namespaces and other managers, because a host is one host. The caller must not modify the result.
func (r *Reconciler) listByHostID(ctx context.Context, obj client.Object, id hosts.ID) ([]*v1alpha1.ScheduledMachine, error) {
	list := &v1alpha1.ScheduledMachineList{}
	opts := []client.ListOption{client.MatchingFields{HostIndex: id.Key()}, client.UnsafeDisableDeepCopy}
	if id.Kind == hosts.MachineID {
		opts = append(opts, client.Limit(manyImages+1))
	}
	if err := r.Reader.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("looking for others of the same host: %w", err)
	}
	if id.Kind == hosts.MachineID && len(list.Items) > manyImages {
		return nil, nil
	}
	others := make([]*v1alpha1.ScheduledMachine, 0, len(list.Items))
	for i := range list.Items {
		if o := &list.Items[i]; o.Name != obj.GetName() || o.Namespace != obj.GetNamespace() {
			others = append(others, o)
		}
	}
	return others, nil
}

// claim returns the object's own claim from the children that exist now. c is the claim that other ScheduledMachines
// see.
func (s *scope) claim(c hosts.Claim) hosts.Claim {
	sm := s.scheduled
	c.Has, c.MadeAt = nil, time.Time{}
	infra, m := s.children.Infrastructure, s.children.Machine
	n := namer{sm: sm}
	if infra != nil {
		n.kind = infra.GroupVersionKind().GroupKind()
		spec, _ := infra.Object["spec"].(map[string]any)
		c.Has = n.ofSpec(spec)
		if cloned(sm) && children.InfrastructureOf(sm).MadeFrom(infra) {
			c.Wants = byAuthor(c.Has)
			c.Since = since(sm, c.Wants)
		}
	}
	if clone := s.clone.object; clone != nil {
		n.kind = clone.GroupVersionKind().GroupKind()
		spec, _ := clone.Object["spec"].(map[string]any)
		c.Wants = n.ofSpec(spec)
		c.Since = since(sm, c.Wants)
	}
	if m != nil {
		c.Has = slices.Concat(c.Has, n.ofMachine(s.acceptedHost))
		c.MadeAt = children.CreatedAt(m).Truncate(time.Second)
	}
	if infra == nil && (m != nil || s.children.InfrastructureUnknown) {
		c.Has = append(c.Has, statusHostIDs(sm)...) // Unknown does not mean absent.
	}
	return c
}

// claimOf returns the claim of another ScheduledMachine.
func (r *Reconciler) claimOf(ctx context.Context, sm *v1alpha1.ScheduledMachine, now time.Time) (claim, error) {
	c := r.claims.of(sm)
	taken := r.hosts.Taken(client.ObjectKeyFromObject(sm).String(), c.claim.Wants, now)
	if len(taken) == 0 && sm.Status.ObservedGeneration == 0 { // It is new, or its status was lost, as in clusterctl move.
		m, err := r.Children.Machine(ctx, sm)
		if err != nil {
			return claim{}, err
		}
		if m != nil {
			taken = c.claim.Wants
		}
	}
	c.claim.Has = slices.Concat(c.claim.Has, taken)
	return c, nil
}

// second reports whether nothing may be created on the host.
func (h host) second() bool { return h.Standing >= hosts.Second }

// reportHost writes the names of the host, and since when the spec names it.
func (s *scope) reportHost(now time.Time) {
	h := v1alpha1.HostStatus{Wanted: inWords(s.scheduled, s.host.mine.Wants)}
	if infra := s.children.Infrastructure; infra != nil {
		spec, _ := infra.Object["spec"].(map[string]any)
		for _, id := range (namer{sm: s.scheduled}).ofSpec(spec) {
			if id.Kind != hosts.ProviderID { // status.providerID has it.
				h.InUse = append(h.InUse, id.String())
			}
		}
	}
	h.InUse = append(h.InUse, s.rejectedHostNames()...)
	if len(h.Wanted) > 0 {
		since := s.host.mine.Since
		if since.IsZero() {
			since = hosts.After(s.host.mine, s.host.others, now)
		}
		h.Since = new(metav1.NewTime(since.UTC().Truncate(time.Second)))
	}
	s.scheduled.Status.Host = nil
	if len(h.Wanted) > 0 || len(h.InUse) > 0 {
		s.scheduled.Status.Host = &h
	}
}

// rejectedHostNames returns the names that the Machine reports and ingest did not accept. Status stores them only here;
// other ScheduledMachines of the host find this one by them.
func (s *scope) rejectedHostNames() []string {
	n, b := namer{sm: s.scheduled}, s.acceptedHost
	var ids []hosts.ID
	if b.ProviderID == "" {
		ids = append(ids, n.id(hosts.ProviderID, b.Reported.ProviderID)...)
	}
	if b.Node == "" {
		ids = append(ids, n.id(hosts.NodeName, b.Reported.Node)...)
	}
	var words []string
	for _, id := range ids {
		words = append(words, id.String())
	}
	return words
}

// mustPropagateReclaim reports whether a request of the host's owner has to be propagated to this object.
func (s *scope) mustPropagateReclaim() bool {
	_, reclaimed := s.scheduled.Reclaimed()
	return s.host.requestsDigest != "" && !reclaimed && s.scheduled.Annotations[v1alpha1.HostReclaimedAnnotation] != s.host.requestsDigest
}

// propagateReclaim records the owner's request on this object, too, so that this ScheduledMachine does not lend the
// host again, also after the other one is deleted. Package reclaim serves it. Each request is propagated once: a person
// may turn the schedule on again, and nothing is created while the owner has the host.
func (r *Reconciler) propagateReclaim(ctx context.Context, s *scope) (bool, error) {
	sm := s.scheduled
	if !s.mustPropagateReclaim() {
		return false, nil
	}
	before := sm.DeepCopy()
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, s.host.asked.String())
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.HostReclaimedAnnotation, s.host.requestsDigest)
	err := r.Actuate.PatchLocked(ctx, sm, before)
	switch {
	case actuate.IsSuppressed(err):
		before.DeepCopyInto(sm)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("passing request of the host's owner on: %w", err)
	}
	r.announcePassedOn(sm, s.host.asked)
	return true, nil
}

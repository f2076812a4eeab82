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

// host is what the object says of its host, and where it stands among those that name it,
// too.
type host struct {
	hosts.Verdict

	mine hosts.Claim
	// others are the claims among which it stands.
	others []hosts.Claim
	// asked is a request of the host's owner that another was told of, and told says which
	// those are, empty where there are none.
	asked v1alpha1.ReclaimRecord
	told  string
}

// observeHost finds out who else names the host.
func (r *Reconciler) observeHost(ctx context.Context, s *scope) error {
	now := r.Clock.Now()
	s.host = host{mine: s.claim(r.claims.of(s.scheduled).claim)}
	taken := r.hosts.Taken(client.ObjectKeyFromObject(s.scheduled).String(), s.host.mine.Wants, now)
	s.host.mine.Has = slices.Concat(s.host.mine.Has, taken)
	rivals, err := r.rivals(ctx, s.scheduled, s.host.mine.IDs())
	if err != nil {
		return err
	}
	said := map[client.ObjectKey]claim{}
	for _, sm := range rivals {
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
	for _, c := range hosts.Asked(s.host.mine, s.host.others) {
		who := said[client.ObjectKey{Namespace: c.Namespace, Name: c.Name}]
		requests = append(requests, who.request)
		if s.host.asked.Of == "" || c.Name < s.host.asked.Of {
			s.host.asked = v1alpha1.ReclaimRecord{Reason: who.record.Reason, RequestedAt: who.record.RequestedAt, Of: c.Name}
		}
	}
	s.host.told = digest(requests)
	return nil
}

// manyImages is how many have the same machine ID where nobody means a host: they were
// made from one image.
const manyImages = 8

// rivals are the other ScheduledMachines that have one of the IDs.
func (r *Reconciler) rivals(ctx context.Context, sm *v1alpha1.ScheduledMachine, ids []hosts.ID) ([]*v1alpha1.ScheduledMachine, error) {
	seen := map[client.ObjectKey]bool{}
	var rivals []*v1alpha1.ScheduledMachine
	for _, id := range ids {
		named, err := r.named(ctx, sm, id)
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
			rivals = append(rivals, rival)
		}
	}
	return rivals, nil
}

// named are the ScheduledMachines that have an ID and not the name of obj, those of other
// namespaces and of other managers among them: a host is one host. They must not be changed.
func (r *Reconciler) named(ctx context.Context, obj client.Object, id hosts.ID) ([]*v1alpha1.ScheduledMachine, error) {
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

// claim is the object's own, of what there is now: c is what it shows to others.
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
		c.Has = slices.Concat(c.Has, n.ofMachine(s.believed))
		c.MadeAt = children.CreatedAt(m).Truncate(time.Second)
	}
	if infra == nil && (m != nil || s.children.InfrastructureUnknown) {
		c.Has = append(c.Has, inUse(sm)...) // Unknown is not absent.
	}
	return c
}

// claimOf is what another ScheduledMachine says of its host.
func (r *Reconciler) claimOf(ctx context.Context, sm *v1alpha1.ScheduledMachine, now time.Time) (claim, error) {
	c := r.claims.of(sm)
	taken := r.hosts.Taken(client.ObjectKeyFromObject(sm).String(), c.claim.Wants, now)
	if len(taken) == 0 && sm.Status.ObservedGeneration == 0 { // Its status was lost, as in clusterctl move, or it is new.
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

// second reports whether nothing may be made on the host.
func (h host) second() bool { return h.Standing >= hosts.Second }

// reportHost writes how the host is named, and since when.
func (s *scope) reportHost(now time.Time) {
	h := v1alpha1.HostStatus{Wanted: inWords(s.scheduled, s.host.mine.Wants)}
	if infra := s.children.Infrastructure; infra != nil {
		spec, _ := infra.Object["spec"].(map[string]any)
		for _, id := range (namer{sm: s.scheduled}).ofSpec(spec) {
			if id.Kind != hosts.ProviderID { // It is in the status already.
				h.InUse = append(h.InUse, id.String())
			}
		}
	}
	h.InUse = append(h.InUse, s.unbelieved()...)
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

// unbelieved are the names of the host that the Machine says where nothing is believed. They
// are nowhere else in the status, by which others of the same host find this one.
func (s *scope) unbelieved() []string {
	n, b := namer{sm: s.scheduled}, s.believed
	var ids []hosts.ID
	if b.ProviderID == "" {
		ids = append(ids, n.id(hosts.ProviderID, b.Says.ProviderID)...)
	}
	if b.Node == "" {
		ids = append(ids, n.id(hosts.NodeName, b.Says.Node)...)
	}
	var words []string
	for _, id := range ids {
		words = append(words, id.String())
	}
	return words
}

// untold reports whether there is a request of the host's owner to pass on.
func (s *scope) untold() bool {
	_, reclaimed := s.scheduled.Reclaimed()
	return s.host.told != "" && !reclaimed && s.scheduled.Annotations[v1alpha1.HostReclaimedAnnotation] != s.host.told
}

// passOn writes down on this object, too, that the owner has the host, or asks for it:
// whoever lends the same host must not take it again, and still knows when the other is
// gone. Package reclaim does the rest. Each request is told once: a person may turn the
// schedule on, and nothing is made while the owner has the host.
func (r *Reconciler) passOn(ctx context.Context, s *scope) (bool, error) {
	sm := s.scheduled
	if !s.untold() {
		return false, nil
	}
	before := sm.DeepCopy()
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, s.host.asked.String())
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.HostReclaimedAnnotation, s.host.told)
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

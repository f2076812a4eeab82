// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// requested is a request of the host's owner that another ScheduledMachine received. requestsDigest is a digest of all
	// such requests, empty if there are none.
	requested      v1alpha1.ReclaimRecord
	requestsDigest string
}

// observeHost lists the other ScheduledMachines that name the host, and judges the claims.
func (r *Reconciler) observeHost(ctx context.Context, s *scope) error {
	now := r.Clock.Now()
	s.host = host{mine: s.claim()}
	mine := &s.host.mine
	mine.Has = slices.Concat(mine.Has, r.hosts.Taken(client.ObjectKeyFromObject(s.scheduled).String(), mine.Wants, now))
	named, others, err := r.namedHost(ctx, s.scheduled, mine.IDs())
	if err != nil {
		return err
	}
	var requests []string
	for i, sm := range named {
		if err := r.addReserved(ctx, sm, &others[i], now); err != nil {
			return err
		}
		if o := others[i]; mine.WithheldBy(o) {
			requests = append(requests, o.Request)
			if s.host.requested.PropagatedFrom == "" || o.Name < s.host.requested.PropagatedFrom {
				record, _ := sm.Reclaimed()
				s.host.requested = v1alpha1.ReclaimRecord{Reason: record.Reason, RequestedAt: record.RequestedAt, PropagatedFrom: o.Name}
			}
		}
	}
	s.host.others, s.host.requestsDigest = others, digest(requests)
	var kept []hosts.Claim
	if len(mine.IDs()) > 0 {
		if kept, err = r.reclaimedClaims(ctx, s.scheduled, mine.Since); err != nil {
			return err
		}
	}
	s.host.Verdict = hosts.Judge(*mine, slices.Concat(others, kept))
	return nil
}

// claim returns the object's own claim from the children that exist now.
func (s *scope) claim() hosts.Claim {
	sm, infra := s.scheduled, s.children.Infrastructure
	wanted := wantedNames(sm)
	switch {
	case s.clone.object != nil:
		wanted = namesInObject(sm, s.clone.object)
	case infra != nil && cloned(sm) && children.InfrastructureOf(sm).MadeFrom(infra):
		wanted = withoutProviderIDs(namesInObject(sm, infra))
	}
	c := claimOf(sm, wanted)
	c.Has, c.MadeAt = s.namesInUse(), time.Time{}
	if m := s.children.Machine; m != nil {
		c.MadeAt = children.CreatedAt(m).Truncate(time.Second)
	}
	return c
}

// namesInUse returns the names of the host of the existing children.
func (s *scope) namesInUse() []hosts.ID {
	var ids []hosts.ID
	infra, m := s.children.Infrastructure, s.children.Machine
	if infra != nil {
		ids = withoutProviderIDs(namesInObject(s.scheduled, infra))
	}
	if m != nil {
		ids = append(ids, namesOfMachine(s.scheduled, s.acceptedHost)...)
	}
	if infra == nil && (m != nil || s.children.InfrastructureUnknown) {
		ids = append(ids, namesInUse(s.scheduled)...) // Unknown does not mean absent.
	}
	return ids
}

// addReserved adds the names that a ScheduledMachine is about to use, which its status does not show yet. A new one may
// have a Machine already if its status was lost, as in clusterctl move.
func (r *Reconciler) addReserved(ctx context.Context, sm *v1alpha1.ScheduledMachine, c *hosts.Claim, now time.Time) error {
	reserved := r.hosts.Taken(client.ObjectKeyFromObject(sm).String(), c.Wants, now)
	if len(reserved) == 0 && sm.Status.ObservedGeneration == 0 {
		m, err := r.Children.Machine(ctx, sm)
		if err != nil {
			return err
		}
		if m != nil {
			reserved = c.Wants
		}
	}
	c.Has = slices.Concat(c.Has, reserved)
	return nil
}

// manyImages is the largest number of ScheduledMachines with one machine ID that is still evaluated. A larger number
// means copies of one image, not one host.
const manyImages = 8

// namedHost returns the ScheduledMachines that have one of the IDs, and their claims, except the one with the name of
// obj. It includes other namespaces and other managers, because a host is one host. A claim wants only the names that
// the index found: no spec is parsed, because there may be a thousand. The caller must not modify the objects.
func (r *Reconciler) namedHost(ctx context.Context, obj client.Object, ids []hosts.ID) ([]*v1alpha1.ScheduledMachine, []hosts.Claim, error) {
	var named []*v1alpha1.ScheduledMachine
	found := map[client.ObjectKey][]hosts.ID{client.ObjectKeyFromObject(obj): nil}
	for _, id := range ids {
		list := &v1alpha1.ScheduledMachineList{}
		opts := []client.ListOption{client.MatchingFields{HostIndex: id.Key()}, client.UnsafeDisableDeepCopy}
		if id.Kind == hosts.MachineID {
			opts = append(opts, client.Limit(manyImages+1))
		}
		if err := r.Reader.List(ctx, list, opts...); err != nil {
			return nil, nil, fmt.Errorf("looking for others of the same host: %w", err)
		}
		if id.Kind == hosts.MachineID && len(list.Items) > manyImages {
			continue
		}
		for i := range list.Items {
			sm := &list.Items[i]
			key := client.ObjectKeyFromObject(sm)
			if _, known := found[key]; !known {
				named = append(named, sm)
			}
			found[key] = append(found[key], id)
		}
	}
	claims := make([]hosts.Claim, len(named))
	for i, sm := range named {
		inUse := namesInUse(sm)
		wanted := slices.DeleteFunc(found[client.ObjectKeyFromObject(sm)], func(id hosts.ID) bool { return slices.Contains(inUse, id) })
		claims[i] = claimOf(sm, wanted)
	}
	return named, claims, nil
}

// maxStatusNames is the maximum number of names in each list of status.host.
const maxStatusNames = 8

// reportHost writes the names of the host, and since when the spec names it.
func (s *scope) reportHost(now time.Time) {
	mine, others := s.host.mine, s.host.others
	h := v1alpha1.HostStatus{Names: hostNames(mine.Wants, maxStatusNames), MachineNames: hostNames(s.namesInUse(), maxStatusNames)}
	if len(h.Names) > 0 {
		since := mine.Since
		if since.IsZero() {
			since = hosts.After(mine, others, now)
		}
		h.Source, h.ClaimTime = source(s.scheduled), new(metav1.NewTime(since.UTC().Truncate(time.Second)))
	}
	s.scheduled.Status.Host = nil
	if len(h.Names) > 0 || len(h.MachineNames) > 0 {
		s.scheduled.Status.Host = &h
	}
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
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, s.host.requested.String())
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.HostReclaimedAnnotation, s.host.requestsDigest)
	err := r.Actuate.PatchLocked(ctx, sm, before)
	switch {
	case actuate.IsSuppressed(err):
		before.DeepCopyInto(sm)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("passing request of the host's owner on: %w", err)
	}
	r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.EmergencyReclaimEvent, "EmergencyReclaim", "%s", s.host.requested.Where())
	return true, nil
}

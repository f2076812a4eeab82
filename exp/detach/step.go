// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fivespotv1 "github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// firstResponse is how long load balancers have to respond after the first check of a Machine, also if their deadline
// passed before it: no manager ran, or the Cluster was paused.
const firstResponse = 30 * time.Second

// Step holds the drain of a Machine that is being deleted until the load balancers of its Cluster have drained its
// Node, or their deadlines have passed. It implements leaving.Step and only reads.
type Step struct {
	// Reader reads LoadBalancers and NodeAttachments from the manager's cache.
	Reader client.Reader

	// first has when each Machine, by UID, was first checked.
	first sync.Map
}

// Concerns implements leaving.Step.
func (s *Step) Concerns(ctx context.Context, m *clusterv1.Machine) (bool, error) {
	balancers, err := balancersOf(ctx, s.Reader, clusterOf(m))
	return len(notDeleting(balancers)) > 0 && m.Status.NodeRef.IsDefined(), err
}

// Forget implements leaving.Step.
func (s *Step) Forget(machine types.UID) { s.first.Delete(machine) }

func clusterOf(m *clusterv1.Machine) client.ObjectKey {
	return client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}
}

// Check implements leaving.Step.
func (s *Step) Check(ctx context.Context, d leaving.Departing, now time.Time) (leaving.Verdict, error) {
	if d.Phase != hooksv1.BeforeDrain || d.Node == "" {
		return leaving.Verdict{}, nil
	}
	balancers, err := balancersOf(ctx, s.Reader, d.Cluster())
	if err != nil {
		return leaving.Verdict{}, err
	}
	a, err := attachment(ctx, s.Reader, d.Cluster(), d.Node)
	if err != nil || a != nil && a.Spec.Trigger == string(plan.Gone) {
		return leaving.Verdict{}, err
	}
	first, _ := s.first.LoadOrStore(d.Machine.UID, now)
	v := waitAll(notDeleting(balancers), a, d, first.(time.Time), util.IsControlPlaneMachine(d.Machine) || a != nil && a.Spec.ControlPlane, now)
	v.Reason = cmp.Or(v.Reason, fivespotv1.WaitingForResponseReason)
	return v, nil
}

// waitAll returns the combined verdict of all load balancers that may have the Node as a member. Its Note has one text
// for each of them that holds the drain, failed, or missed its deadline.
func waitAll(balancers []expv1.LoadBalancer, a *expv1.NodeAttachment, d leaving.Departing, first time.Time, controlPlane bool, now time.Time) (v leaving.Verdict) {
	var notes []string
	for i := range balancers {
		if lb := &balancers[i]; lb.Spec.ControlPlane || !controlPlane {
			if note := wait(&v, lb, a, d, first, now); note != "" {
				notes = append(notes, note)
			}
		}
	}
	v.Note = strings.Join(notes, "; ")
	return v
}

// wait adds one load balancer to the verdict v. first is when the load balancer could first be called. It returns the
// reason why the drain waits, or proceeds although the Node is not detached.
func wait(v *leaving.Verdict, lb *expv1.LoadBalancer, a *expv1.NodeAttachment, d leaving.Departing, first, now time.Time) (note string) {
	phase, says, serves, known := expv1.PhasePending, "not called yet", false, false
	if p := progressIfDetaching(a, lb); p != nil {
		phase, says, known = p.Phase, cmp.Or(p.Message, says), p.Message != ""
		serves = slices.ContainsFunc(p.Members, func(m expv1.MembershipStatus) bool { return m.State == string(balancer.Draining) || m.Message != "" })
	}
	name := "load balancer " + lb.Name
	has, limit := time.Duration(lb.Spec.DeadlineSeconds)*time.Second, fmt.Sprintf("its deadline, spec.deadlineSeconds %d", lb.Spec.DeadlineSeconds)
	if half, name := d.HalfGrace(); half > 0 && half < has {
		has, limit = half, name
	}
	until := leaving.Progress{FirstCalled: first}.Until(has, firstResponse, d.Began, now)
	switch {
	case phase == expv1.PhaseDetached:
		return ""
	case phase == expv1.PhaseUnknown && lb.Spec.FailurePolicy == fivespotv1.FailurePolicyIgnore && !serves:
		v.Failed = true
		return fmt.Sprintf("%s failed and is ignored: %s", name, says)
	case !now.Before(until):
		v.Missed, v.Reason = true, fivespotv1.WaitingForLoadBalancersReason
		return fmt.Sprintf("%s missed %s: %s", name, limit, says)
	}
	v.Holds = true
	if known {
		v.Reason = fivespotv1.WaitingForLoadBalancersReason
	}
	v.Again = instant.Earliest(v.Again, until)
	return fmt.Sprintf("%s: %s (until %s at the latest)", name, says, until.UTC().Format(time.RFC3339))
}

// progressIfDetaching returns the progress of the Node at a LoadBalancer. It returns nil if no detach was requested, or
// if the progress is outdated.
func progressIfDetaching(a *expv1.NodeAttachment, lb *expv1.LoadBalancer) *expv1.BalancerProgress {
	if a == nil || !mustDetach(a, lb.Name) {
		return nil
	}
	p := progressOf(a, lb.Name)
	if p == nil || p.Phase == expv1.PhaseAttaching || p.Phase != expv1.PhaseUnknown && !current(p, lb, a) {
		return nil
	}
	return p
}

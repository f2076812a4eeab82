// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// hold copies the agent's report of a hold to the status, because the Node is often gone before the Machine. It stores a
// report only while a recorded request is being served: an earlier write could conflict with the one that records the
// request. It removes the report when another machine has joined.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	sm := s.scheduled
	report := decideHold(s.holdFacts())
	if equality.Semantic.DeepEqual(report, sm.Status.ReclaimHold) {
		return nil
	}
	before := sm.DeepCopy()
	sm.Status.ReclaimHold = report
	return client.IgnoreNotFound(r.Actuate.PatchStatus(ctx, sm, before))
}

// holdFacts is the observed state on which decideHold bases the report.
type holdFacts struct {
	// last is the report in the status, nil for none.
	last *v1alpha1.HoldReport
	// reclaiming reports that a recorded request is being served.
	reclaiming bool
	// joined reports that there is a Machine. unseen reports that its Node exists and could not be read.
	joined, unseen bool
	// annotation is the agent's report on the Node, empty if there is none.
	annotation string
}

func (s *scope) holdFacts() holdFacts {
	f := holdFacts{
		last: s.scheduled.Status.ReclaimHold, reclaiming: s.scheduled.BeingReclaimed(),
		joined: s.machine != nil, unseen: s.host.Node != "" && s.node == nil,
	}
	// A report of a hold that was configured before may be left on the Node.
	if s.node != nil && s.hostMismatch() == "" && s.scheduled.Spec.ReclaimHold.Enabled() {
		f.annotation = s.node.Annotations[reclaimapi.HoldAnnotation]
	}
	return f
}

// decideHold returns the report for the status. The last one stays after the machine is gone, until another one joins.
// A text that no agent writes is ignored; package reclaim counts it.
func decideHold(f holdFacts) *v1alpha1.HoldReport {
	state, ok := reclaimapi.ParseHoldState(f.annotation)
	switch {
	case f.reclaiming && ok && state.Unavailable == "":
		return &v1alpha1.HoldReport{
			FrozenPods: state.Pods, FrozenAfterMilliseconds: state.CPU.Milliseconds(), RunningPods: state.Running,
			KilledPods: state.Killed, KilledAfterMilliseconds: state.Memory.Milliseconds(),
		}
	case f.reclaiming, !f.joined, f.unseen:
		return f.last
	default:
		return nil
	}
}

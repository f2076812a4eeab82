// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// hold copies the agent's report of a hold to the status, because the Node is often gone before the Machine. It stores a
// report only while a recorded request is being served: an earlier write could conflict with the one that records the
// request. It removes the report when another machine has joined.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	sm := s.scheduled
	before := sm.DeepCopy()
	sm.Status.ReclaimHold = s.holdReport()
	return client.IgnoreNotFound(r.Actuate.PatchStatus(ctx, sm, before))
}

// holdReport returns the report for the status. The last one stays after the machine is gone, until another one joins.
// A text that no agent writes is ignored; package reclaim counts it.
func (s *scope) holdReport() *v1alpha1.HoldReport {
	sm, annotation := s.scheduled, ""
	// A report of a hold that was configured before may be left on the Node.
	if s.node != nil && s.hostMismatch() == "" && sm.Spec.ReclaimHold.Enabled() {
		annotation = s.node.Annotations[reclaimapi.HoldAnnotation]
	}
	state, ok := reclaimapi.ParseHoldState(annotation)
	switch {
	case sm.BeingReclaimed() && ok && state.Unavailable == "":
		return &v1alpha1.HoldReport{
			FrozenPods: state.Pods, FrozenAfterMilliseconds: state.CPU.Milliseconds(), RunningPods: state.Running,
			KilledPods: state.Killed, KilledAfterMilliseconds: state.Memory.Milliseconds(),
		}
	case sm.BeingReclaimed(), s.machine == nil, s.host.Node != "" && s.node == nil:
		return sm.Status.ReclaimHold
	default:
		return nil
	}
}

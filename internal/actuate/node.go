// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// evicting is the taint of a Node whose machine is being returned to its owner.
var evicting = corev1.Taint{Key: reclaim.NodeTaint, Effect: corev1.TaintEffectNoExecute}

// Evicting reports whether the Node has the eviction taint.
func Evicting(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&evicting) })
}

// Evict taints the Node, so that its pods start elsewhere without a drain. It fails with a conflict if the Node
// has changed since it was read, because the list of taints has several writers.
func (a Action) Evict(ctx context.Context, node *corev1.Node) error {
	if Evicting(node) {
		return nil
	}
	before := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, evicting)
	return a.PatchLocked(ctx, node, before)
}

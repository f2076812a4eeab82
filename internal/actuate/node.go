// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// evicting is the taint of a Node whose machine is being given back.
var evicting = corev1.Taint{Key: reclaim.NodeTaint, Effect: corev1.TaintEffectNoExecute}

// Evicting reports whether the pods of the Node are being started elsewhere.
func Evicting(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&evicting) })
}

// Evict taints the Node, so that its pods are started elsewhere although nobody
// drains it. It is refused with a conflict when the Node has changed since it was
// read: the list of taints has several writers.
func (a Action) Evict(ctx context.Context, node *corev1.Node) error {
	if Evicting(node) {
		return nil
	}
	before := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, evicting)
	return a.PatchLocked(ctx, node, before)
}

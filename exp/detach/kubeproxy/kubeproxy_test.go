// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

func TestOwner(t *testing.T) {
	autoscalers := corev1.Taint{Key: plan.AutoscalerTaint, Value: "1772438400", Effect: corev1.TaintEffectNoSchedule}
	for _, c := range []struct {
		name   string
		taints []corev1.Taint
		want   nodemark.Owner
	}{
		{name: "none", want: nodemark.Unmarked},
		{name: "another", taints: []corev1.Taint{{Key: "dedicated", Value: "5spot", Effect: corev1.TaintEffectNoSchedule}}, want: nodemark.Unmarked},
		{name: "ours", taints: []corev1.Taint{ours}, want: nodemark.MarkedByUs},
		{name: "ours beside an autoscaler's", taints: []corev1.Taint{autoscalers, ours}, want: nodemark.MarkedByUs},
		{name: "an autoscaler's", taints: []corev1.Taint{autoscalers}, want: nodemark.MarkedByOthers},
		{name: "without a value", taints: []corev1.Taint{{Key: plan.AutoscalerTaint, Effect: corev1.TaintEffectNoSchedule}}, want: nodemark.MarkedByOthers},
		{name: "of another effect", taints: []corev1.Taint{{Key: plan.AutoscalerTaint, Value: "5spot", Effect: corev1.TaintEffectNoExecute}}, want: nodemark.MarkedByOthers},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: c.taints}}
			if got := owner(node); got != c.want {
				t.Errorf("owner = %v, want %v", got, c.want)
			}
		})
	}
}

// TestTheTaintKeepsNoDaemonSetAway: the DaemonSet controller creates no pod for a Node with a taint of these effects
// that the pod does not tolerate.
func TestTheTaintKeepsNoDaemonSetAway(t *testing.T) {
	if ours.Effect == corev1.TaintEffectNoSchedule || ours.Effect == corev1.TaintEffectNoExecute {
		t.Errorf("effect %s", ours.Effect)
	}
}

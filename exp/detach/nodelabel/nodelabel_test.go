// SPDX-License-Identifier: Apache-2.0

package nodelabel

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
)

func TestOwner(t *testing.T) {
	since := map[string]string{expv1.NodeExcludedAnnotation: "2026-03-02T08:00:00Z"}
	for _, c := range []struct {
		name                string
		labels, annotations map[string]string
		want                nodemark.Owner
	}{
		{name: "no label", want: nodemark.Unmarked},
		{name: "another label", labels: map[string]string{"alpha.service-controller.kubernetes.io/exclude-balancer": "true"}, want: nodemark.Unmarked},
		{name: "label", labels: map[string]string{corev1.LabelNodeExcludeBalancers: "true"}, want: nodemark.MarkedByOthers},
		{name: "label that kubeadm writes", labels: map[string]string{corev1.LabelNodeExcludeBalancers: ""}, want: nodemark.MarkedByOthers},
		{name: "label that says no", labels: map[string]string{corev1.LabelNodeExcludeBalancers: "false"}, want: nodemark.MarkedByOthers},
		{name: "label of ours", labels: map[string]string{corev1.LabelNodeExcludeBalancers: "true"}, annotations: since, want: nodemark.MarkedByUs},
		{name: "label of ours that somebody changed", labels: map[string]string{corev1.LabelNodeExcludeBalancers: "false"}, annotations: since, want: nodemark.MarkedByOthers},
		{name: "annotation alone", annotations: since, want: nodemark.Unmarked},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}}
			if got := owner(node); got != c.want {
				t.Errorf("owner = %v, want %v", got, c.want)
			}
		})
	}
}

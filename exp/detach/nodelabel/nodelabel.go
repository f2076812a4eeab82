// SPDX-License-Identifier: Apache-2.0

// Package nodelabel answers one question: how does a Node leave load balancers that leave
// out Nodes with a label?
package nodelabel

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
)

const (
	// value is what every reader of the label takes for yes. To some its mere presence is.
	value = "true"
	// defaultWait is that of the API.
	defaultWait = 60
)

// New returns the Driver of load balancers that read the label.
func New(spec expv1.LabelBalancer, nodes nodemark.Nodes, c clock.PassiveClock) *nodemark.Driver {
	return nodemark.New(nodes, c, nodemark.Mark{
		Annotation: expv1.NodeExcludedAnnotation,
		Owner:      owner,
		PutOn: func(node *corev1.Node) {
			if node.Labels == nil {
				node.Labels = map[string]string{}
			}
			node.Labels[corev1.LabelNodeExcludeBalancers] = value
		},
		TakeOff: func(node *corev1.Node) { delete(node.Labels, corev1.LabelNodeExcludeBalancers) },
	}, time.Duration(ptr.Deref(spec.WaitSeconds, defaultWait))*time.Second)
}

// owner takes any label for somebody else's that we would not have written: also one that
// says "false", of which readers make different things.
func owner(node *corev1.Node) nodemark.Owner {
	got, labeled := node.Labels[corev1.LabelNodeExcludeBalancers]
	_, ours := node.Annotations[expv1.NodeExcludedAnnotation]
	switch {
	case !labeled:
		return nodemark.Nobody
	case ours && got == value:
		return nodemark.Us
	default:
		return nodemark.Others
	}
}

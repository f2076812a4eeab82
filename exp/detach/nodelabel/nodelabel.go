// SPDX-License-Identifier: Apache-2.0

// Package nodelabel is the Driver for load balancers that exclude Nodes with the label
// node.kubernetes.io/exclude-from-external-load-balancers. To drain a Node, it sets the label, and it removes only a
// label that it has set.
package nodelabel

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
)

const (
	// value is the label value that all readers accept. Some readers check only that the label exists.
	value = "true"
	// defaultWait is the API's default for waitSeconds, in seconds.
	defaultWait = 60
)

// New returns the Driver of load balancers that read the label.
func New(spec expv1.LabelBalancer, nodes nodemark.Nodes, c clock.PassiveClock) *nodemark.Driver {
	return nodemark.New(nodes, c, nodemark.Mark{
		Annotation: expv1.NodeExcludedAnnotation,
		Owner:      owner,
		Add: func(node *corev1.Node) {
			metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelNodeExcludeBalancers, value)
		},
		Remove: func(node *corev1.Node) { delete(node.Labels, corev1.LabelNodeExcludeBalancers) },
	}, time.Duration(ptr.Deref(spec.WaitSeconds, defaultWait))*time.Second)
}

// owner returns MarkedByOthers for every label that 5-Spot would not have written. That includes the value "false",
// which readers interpret differently.
func owner(node *corev1.Node) nodemark.Owner {
	got, labeled := node.Labels[corev1.LabelNodeExcludeBalancers]
	switch {
	case !labeled:
		return nodemark.Unmarked
	case got == value && metav1.HasAnnotation(node.ObjectMeta, expv1.NodeExcludedAnnotation):
		return nodemark.MarkedByUs
	default:
		return nodemark.MarkedByOthers
	}
}

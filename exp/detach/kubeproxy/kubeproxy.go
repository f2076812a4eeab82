// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy answers one question: how does a Node leave load balancers whose health
// check is kube-proxy's? From Kubernetes 1.31 on /healthz at port 10256 fails on a Node with
// the taint of cluster-autoscaler, whatever its value, and connections go on; see KEP-3836,
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3836-kube-proxy-improved-ingress-connectivity-reliability.
// The health check of a Service, at its healthCheckNodePort, does not look at the taint.
package kubeproxy

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
)

const (
	// Taint is the key of the taint.
	Taint = "ToBeDeletedByClusterAutoscaler"
	// value is that of our taint. That of cluster-autoscaler is a number of seconds.
	value = "5spot"
	// FailingAnnotation is on a Node that has the taint from us. It says since when.
	FailingAnnotation = "5spot.finos.org/failing-health-check-of-kube-proxy"
	// defaultWait is that of the API.
	defaultWait = 30
)

// IsOurs says whether a taint is ours, and nobody's sign that a Node is leaving.
func IsOurs(t corev1.Taint) bool {
	return t.Key == Taint && t.Value == value && t.Effect == corev1.TaintEffectNoSchedule
}

// New returns the Driver of load balancers that ask kube-proxy. cluster-autoscaler takes the
// taint off when it starts.
func New(spec expv1.KubeProxyBalancer, nodes nodemark.Nodes, c clock.PassiveClock) *nodemark.Driver {
	return nodemark.New(nodes, c, nodemark.Mark{
		Annotation: FailingAnnotation,
		Owner:      owner,
		PutOn: func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: Taint, Value: value, Effect: corev1.TaintEffectNoSchedule})
		},
		TakeOff:  func(node *corev1.Node) { node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, IsOurs) },
		Volatile: true,
	}, time.Duration(ptr.Deref(spec.WaitSeconds, defaultWait))*time.Second)
}

// owner goes by the value of the taint: an API server lets nobody write two of one effect.
func owner(node *corev1.Node) nodemark.Owner {
	switch {
	case slices.ContainsFunc(node.Spec.Taints, IsOurs):
		return nodemark.Us
	case slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == Taint }):
		return nodemark.Others
	default:
		return nodemark.Nobody
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy is the Driver for load balancers whose health check is kube-proxy's. From Kubernetes 1.31 on,
// /healthz at port 10256 fails on a Node with the taint of cluster-autoscaler, whatever its value. Open connections
// continue; see KEP-3836,
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3836-kube-proxy-improved-ingress-connectivity-reliability.
// The health check of a Service, at its healthCheckNodePort, ignores the taint.
package kubeproxy

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

// defaultWait is the API's default for waitSeconds, in seconds.
const defaultWait = 30

// ours is the taint that 5-Spot sets. Its value differs from cluster-autoscaler's, which is a number of seconds;
// kube-proxy reads only the key. The DaemonSet controller ignores taints with PreferNoSchedule, so the new pod of a
// roll is scheduled.
var ours = corev1.Taint{Key: plan.AutoscalerTaint, Value: plan.OurTaintValue, Effect: corev1.TaintEffectPreferNoSchedule}

// isOurs reports whether 5-Spot set the taint, so that it does not mean that the Node leaves.
func isOurs(t corev1.Taint) bool { return t.MatchTaint(&ours) && t.Value == ours.Value }

// New returns the Driver. It is volatile, because cluster-autoscaler removes the taint when it starts.
func New(spec expv1.KubeProxyBalancer, nodes nodemark.Nodes, c clock.PassiveClock) *nodemark.Driver {
	return nodemark.New(nodes, c, nodemark.Mark{
		Annotation: expv1.NodeFailingHealthCheckAnnotation,
		Owner:      owner,
		Add: func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, ours)
		},
		Remove:   func(node *corev1.Node) { node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isOurs) },
		Volatile: true,
	}, time.Duration(ptr.Deref(spec.WaitSeconds, defaultWait))*time.Second)
}

// owner checks the value of the taint, because a Node may have 5-Spot's and cluster-autoscaler's taint at the same
// time.
func owner(node *corev1.Node) nodemark.Owner {
	switch {
	case slices.ContainsFunc(node.Spec.Taints, isOurs):
		return nodemark.MarkedByUs
	case slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == ours.Key }):
		return nodemark.MarkedByOthers
	default:
		return nodemark.Unmarked
	}
}

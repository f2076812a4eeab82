// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of NodeAttachments and LoadBalancers.
const (
	// NodeBeingDetachedCondition says on a NodeAttachment whether its Node is out of its load
	// balancers, or on its way.
	NodeBeingDetachedCondition = "NodeBeingDetached"

	// ReachableCondition says on a LoadBalancer whether it answered when it was last asked.
	// Nobody asks it while no Node leaves or comes back.
	ReachableCondition = "Reachable"

	// DaemonSetsRolledCondition says on a LoadBalancer that has DaemonSets rolled whether their
	// pods are up to date.
	DaemonSetsRolledCondition = "DaemonSetsRolled"
)

// Reasons of NodeBeingDetached.
const (
	// DetachingReason is that of a Node that is about to be taken out, or has connections.
	DetachingReason = "Detaching"
	// DetachedReason is that of a Node that is out of all load balancers.
	DetachedReason = "Detached"
	// HeldByFloorReason is that of a Node that stays in a pool because too few others are
	// in it.
	HeldByFloorReason = "HeldByFloor"
	// LoadBalancerUnknownReason is that of a Node of which a load balancer does not say
	// whether it is a member.
	LoadBalancerUnknownReason = "LoadBalancerUnknown"
	// AttachingReason is that of a Node that is being put back.
	AttachingReason = "Attaching"
)

// Reasons of Reachable.
const (
	// AnsweredReason is that of a load balancer that answered.
	AnsweredReason = "Answered"
	// NoAnswerReason is that of one that did not, or said no.
	NoAnswerReason = "NoAnswer"
)

// Reasons of DaemonSetsRolled.
const (
	// UpToDateReason is that of DaemonSets without outdated pods.
	UpToDateReason = "UpToDate"
	// RollingReason is that of a DaemonSet whose pods are being replaced.
	RollingReason = "Rolling"
	// RollWaitsReason is that of a roll that does not go on by itself: a pod is not Ready, or a
	// Node has been out for ten minutes.
	RollWaitsReason = "RollWaits"
)

const (
	// Finalizer keeps a NodeAttachment, or a LoadBalancer, until every place that was taken is
	// given back.
	Finalizer = "exp.5spot.finos.org/attachment"

	// NodeDetachingAnnotation says on a Node whether it is out of its load balancers, or on
	// its way: true or false. It is the one of node-detacher, for those who watch that.
	NodeDetachingAnnotation = "node-detacher.variant.run/detaching"

	// NodeDetachAnnotation with the value true asks to take a Node out of its load balancers,
	// and leaves its pods alone. Any other value asks for nothing.
	NodeDetachAnnotation = "exp.5spot.finos.org/detach"

	// NodeExcludedAnnotation is on a Node that has the label of load balancers from us. It says
	// since when.
	NodeExcludedAnnotation = "5spot.finos.org/excluded-from-load-balancers"

	// NodeFailingHealthCheckAnnotation is on a Node for which kube-proxy's health check fails because of
	// our taint. It says since when.
	NodeFailingHealthCheckAnnotation = "5spot.finos.org/failing-health-check-of-kube-proxy"
)

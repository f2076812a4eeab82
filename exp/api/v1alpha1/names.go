// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of NodeAttachments and LoadBalancers.
const (
	// NodeBeingDetachedCondition is the condition of a NodeAttachment that reports whether its Node is detached from
	// its load balancers, or being detached.
	NodeBeingDetachedCondition = "NodeBeingDetached"

	// ReachableCondition is the condition of a LoadBalancer that reports whether it answered the last call. 5-Spot
	// calls it only while a Node leaves or comes back.
	ReachableCondition = "Reachable"

	// DaemonSetsUpToDateCondition is the condition of a LoadBalancer with DaemonSets to roll that reports whether their
	// pods are up to date.
	DaemonSetsUpToDateCondition = "DaemonSetsUpToDate"
)

// Reasons of NodeBeingDetached.
const (
	// DetachingReason means that the Node will be detached, or still has connections.
	DetachingReason = "Detaching"
	// DetachedReason means that the Node is detached from all load balancers.
	DetachedReason = "Detached"
	// InsufficientMembersReason means that the Node stays in a pool because too few other members are in it.
	InsufficientMembersReason = "InsufficientMembers"
	// MembershipUnknownReason means that it is unknown whether the Node is still a member of a load balancer.
	MembershipUnknownReason = "MembershipUnknown"
	// AttachingReason means that the memberships of the Node are being restored.
	AttachingReason = "Attaching"
)

// Reasons of Reachable.
const (
	// CallSucceededReason means that the load balancer answered.
	CallSucceededReason = "CallSucceeded"
	// CallFailedReason means that the load balancer did not answer, or refused.
	CallFailedReason = "CallFailed"
)

// Reasons of DaemonSetsUpToDate.
const (
	// UpToDateReason means that no DaemonSet has outdated pods.
	UpToDateReason = "UpToDate"
	// RollingOutReason means that pods of a DaemonSet are being replaced.
	RollingOutReason = "RollingOut"
	// RolloutStalledReason means that a roll is stuck: a pod is not Ready, or a Node has been detached for ten minutes.
	RolloutStalledReason = "RolloutStalled"
)

const (
	// Finalizer holds a NodeAttachment or a LoadBalancer until 5-Spot has restored all
	// memberships that it drained.
	Finalizer = "exp.5spot.finos.org/attachment"

	// NodeDetachingAnnotation on a Node is true while the Node is detached from its load balancers or being
	// detached, and false otherwise. It is the annotation of node-detacher, for programs that watch that.
	NodeDetachingAnnotation = "node-detacher.variant.run/detaching"

	// NodeDetachAnnotation with the value true detaches a Node from its load balancers; its pods
	// stay. Any other value is no request.
	NodeDetachAnnotation = "exp.5spot.finos.org/detach"

	// NodeExcludedAnnotation is on a Node that 5-Spot labelled for exclusion from load balancers. Its value is the
	// time.
	NodeExcludedAnnotation = "5spot.finos.org/excluded-from-load-balancers"

	// NodeFailingHealthCheckAnnotation is on a Node that 5-Spot tainted so that kube-proxy's health check fails. Its
	// value is the time.
	NodeFailingHealthCheckAnnotation = "5spot.finos.org/kube-proxy-health-check-failing"
)

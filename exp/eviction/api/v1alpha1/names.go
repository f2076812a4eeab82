// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// RequestedAnnotation is on a pod whose move 5-Spot requested from its operator. Its value is the time.
	RequestedAnnotation = "5spot.finos.org/reschedule-requested"

	// GuardedLabel with the value enabled on a Namespace makes the API server call the eviction guard for evictions
	// of its pods.
	GuardedLabel = "5spot.finos.org/eviction-guard"

	// GuardRightsLabel with the value true on a ClusterRole aggregates it to the rights of the eviction guard, such
	// as the rights to write the marks that a policy tracks pods by.
	GuardRightsLabel = "eviction.5spot.finos.org/aggregate-to-guard"

	// ControllerLabel is on a RescheduleRequest that a drain caused, until the drain ends or the request is withdrawn.
	// Its value is the UID of the controller of the pod, empty if the pod has none.
	ControllerLabel = "eviction.5spot.finos.org/controller"

	// TrackingPrefix begins the key of the mark of Couchbase's eviction reschedule hook. The namespace and the name
	// of the pod follow, with a dot between them.
	TrackingPrefix = "reschedule.hook/"
)

// Reasons of events that the eviction guard records, once per pod.
const (
	// RescheduleRequestedEvent is the Normal event on a pod whose move was requested from its operator because the pod
	// was evicted. A request of the manager, for a machine that leaves, has none.
	RescheduleRequestedEvent = "RescheduleRequested"
	// RescheduleOverdueEvent is the Warning on a pod that was not moved within the deadline of its policy. The
	// fallback of the policy applies from then on.
	RescheduleOverdueEvent = "RescheduleOverdue"
	// RescheduleWithdrawnEvent is the Normal event on a pod that may stay on its Node after all.
	RescheduleWithdrawnEvent = "RescheduleWithdrawn"
	// RescheduledEvent is the Normal event on a RescheduleRequest whose pod has left its Node.
	RescheduledEvent = "Rescheduled"
)

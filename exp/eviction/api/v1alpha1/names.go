// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// RequestedAnnotation is on a pod whose operator 5-Spot has asked to move it. It says since
	// when.
	RequestedAnnotation = "5spot.finos.org/reschedule-requested"

	// GuardedLabel with the value enabled on a Namespace has the eviction guard asked about
	// evictions of its pods.
	GuardedLabel = "5spot.finos.org/eviction-guard"

	// GuardRightsLabel with the value true on a ClusterRole has the eviction guard have its rights,
	// such as those to write the marks that a policy tracks pods by.
	GuardRightsLabel = "eviction.5spot.finos.org/aggregate-to-guard"

	// TrackingPrefix begins the key of the mark of Couchbase's eviction reschedule hook. The rest
	// is the namespace and the name of the pod, with a dot between them.
	TrackingPrefix = "reschedule.hook/"
)

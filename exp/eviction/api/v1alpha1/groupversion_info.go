// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the API types of the eviction guard: ReschedulePolicy, ClusterReschedulePolicy and
// RescheduleRequest. The eviction guard's manifests install them in workload clusters, never in the management cluster.
//
// +kubebuilder:object:generate=true
// +groupName=eviction.5spot.finos.org
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "eviction.5spot.finos.org", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ReschedulePolicy{}, &ReschedulePolicyList{}, &ClusterReschedulePolicy{}, &ClusterReschedulePolicyList{},
		&RescheduleRequest{}, &RescheduleRequestList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

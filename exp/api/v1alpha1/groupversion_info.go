// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the API types of experimental features. They have a group of their own, because they may
// change with any release. A stable type moves to 5spot.finos.org.
//
// +kubebuilder:object:generate=true
// +groupName=exp.5spot.finos.org
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "exp.5spot.finos.org", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &LoadBalancer{}, &LoadBalancerList{}, &NodeAttachment{}, &NodeAttachmentList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

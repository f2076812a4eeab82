// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 answers: what may a user write in an object of a feature that is
// tried, and what will they read back? Its types have a group of their own, because they
// may change with any release. One that proves itself moves to 5spot.finos.org.
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

const (
	// Finalizer keeps a NodeAttachment, or a LoadBalancer, until every place that was taken is
	// given back.
	Finalizer = "exp.5spot.finos.org/attachment"

	// DetachingAnnotation says on a Node whether it is out of its load balancers, or on its
	// way: true or false. It is the one of node-detacher, for those who watch that.
	DetachingAnnotation = "node-detacher.variant.run/detaching"

	// DetachAnnotation with the value true asks to take a Node out of its load balancers, and
	// leaves its pods alone. Any other value asks for nothing.
	DetachAnnotation = "exp.5spot.finos.org/detach"
)

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &LoadBalancer{}, &LoadBalancerList{}, &NodeAttachment{}, &NodeAttachmentList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

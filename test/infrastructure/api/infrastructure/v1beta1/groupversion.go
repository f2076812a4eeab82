// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the infrastructure kinds of the tests'
// infrastructure provider. They follow Cluster API's contract v1beta2.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of these kinds.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1"}

// AddToScheme registers these kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PlaneCluster{}, &PlaneClusterList{}, &PlaneClusterTemplate{}, &PlaneClusterTemplateList{},
		&PlaneMachine{}, &PlaneMachineList{}, &PlaneMachineTemplate{}, &PlaneMachineTemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

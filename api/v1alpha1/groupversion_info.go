// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the API types of 5-Spot: ScheduledMachine, MachineDeletionHook and ReclaimedMachine, with
// their defaults and bounds. It also defines every name that is an API: conditions, reasons, Events, labels,
// annotations.
//
// Durations are strings, switches are booleans, and labels are maps, against the API conventions of Cluster API:
// these fields were published before this provider, and manifests use them. The schema and the webhook bound them.
//
// +kubebuilder:object:generate=true
// +groupName=5spot.finos.org
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "5spot.finos.org", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ScheduledMachine{}, &ScheduledMachineList{}, &MachineDeletionHook{}, &MachineDeletionHookList{}, &ReclaimedMachine{}, &ReclaimedMachineList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package controllers

// What the manager may do, rule by rule.
//
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines,verbs=get;list;watch;create;patch;delete
// A verb of config/policy, which keeps to the switches who may change an object without it.
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines,verbs=manage
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines/status,verbs=patch
// Needed for blockOwnerDeletion on the Machine, where OwnerReferencesPermissionEnforcement is on.
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=5spot.finos.org,resources=reclaimedmachines,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// The condition of a Cluster whose topology asks for ScheduledMachines.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/status,verbs=patch
// Conditions of Machines that leave, and the extensions that are asked about them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=5spot.finos.org,resources=machinedeletionhooks,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// Load balancers, and what was taken from Nodes that leave them.
// +kubebuilder:rbac:groups=exp.5spot.finos.org,resources=loadbalancers,verbs=list;watch;patch
// +kubebuilder:rbac:groups=exp.5spot.finos.org,resources=nodeattachments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=exp.5spot.finos.org,resources=loadbalancers/status;nodeattachments/status,verbs=patch
// Any kind of the groups that a ScheduledMachine may name.
// Templates are tied to their Cluster by a patch.
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io;infrastructure.cluster.x-k8s.io;k0smotron.io,resources=*,verbs=get;list;watch;create;patch;delete
// The version of a Cluster without topology is that of its control plane.
// Whether a kind is installed, and how it is served, is read from its definition.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=list;watch
// The registration of the runtime extension, which goes with the webhook's.
// +kubebuilder:rbac:groups=runtime.cluster.x-k8s.io,resources=extensionconfigs,resourceNames=fivespot,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=fivespot-validating-webhook-configuration,verbs=get
// Kubeconfigs of workload clusters.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// The authorised diagnostics endpoint.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

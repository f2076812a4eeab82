// SPDX-License-Identifier: Apache-2.0

package controllers

// Permissions of the manager.
//
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines,verbs=get;list;watch;create;patch;delete
// config/policy restricts users without the verb manage to the switches of a ScheduledMachine.
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines,verbs=manage
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines/status,verbs=patch
// Needed for blockOwnerDeletion on the Machine if the admission plugin OwnerReferencesPermissionEnforcement is on.
// +kubebuilder:rbac:groups=5spot.finos.org,resources=scheduledmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=5spot.finos.org,resources=reclaimedmachines,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// Conditions of a Cluster whose topology lists ScheduledMachines, or in which the agent is installed.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/status,verbs=patch
// Conditions of leaving Machines, and the extensions that 5-Spot calls for them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=5spot.finos.org,resources=machinedeletionhooks,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// Load balancers, and the records of Nodes that are detached from them.
// +kubebuilder:rbac:groups=exp.5spot.finos.org,resources=loadbalancers,verbs=list;watch;patch
// +kubebuilder:rbac:groups=exp.5spot.finos.org,resources=nodeattachments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=exp.5spot.finos.org,resources=loadbalancers/status;nodeattachments/status,verbs=patch
// All kinds of the groups that a ScheduledMachine may refer to. Templates get an owner reference to their Cluster.
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io;infrastructure.cluster.x-k8s.io;k0smotron.io,resources=*,verbs=get;list;watch;create;patch;delete
// Without a topology, the version of a Cluster is the version of its control plane. A CustomResourceDefinition shows
// whether a kind is installed, and in which versions it is served.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=list;watch
// The registration of the runtime extension, which the webhook configuration owns.
// +kubebuilder:rbac:groups=runtime.cluster.x-k8s.io,resources=extensionconfigs,resourceNames=fivespot,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=fivespot-validating-webhook-configuration,verbs=get
// Kubeconfigs of workload clusters.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// The authorised diagnostics endpoint.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

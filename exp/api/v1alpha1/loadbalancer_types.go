// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fivespotv1 "github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// LoadBalancerSpec is the address of a load balancer, and how long a Node waits for it.
//
// +kubebuilder:validation:XValidation:rule="[has(self.kubeProxy), has(self.label), has(self.haproxy), has(self.targetGroups), has(self.classicELB)].filter(set, set).size() == 1",message="set exactly one of kubeProxy, label, haproxy, targetGroups and classicELB"
// +kubebuilder:validation:XValidation:rule="has(self.kubeProxy) == has(oldSelf.kubeProxy) && has(self.label) == has(oldSelf.label) && has(self.haproxy) == has(oldSelf.haproxy) && has(self.targetGroups) == has(oldSelf.targetGroups) && has(self.classicELB) == has(oldSelf.classicELB)",message="a load balancer cannot become one of another kind: delete it, which puts back what it took, and make another"
type LoadBalancerSpec struct {
	// clusterName is the Cluster, in the same namespace, whose Nodes are members.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')",message="must be the name of a Cluster: letters, digits, '-', '_' and '.', and it begins and ends with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterName cannot be changed: make another LoadBalancer"
	ClusterName string `json:"clusterName,omitempty"`

	// kubeProxy is for load balancers whose health check is kube-proxy's: it fails on a
	// Node that leaves, and connections go on. Needs Kubernetes 1.31 in the workload cluster.
	// +optional
	KubeProxy *KubeProxyBalancer `json:"kubeProxy,omitempty"`

	// label is for load balancers that leave out Nodes with the label
	// node.kubernetes.io/exclude-from-external-load-balancers. Some of them cut the
	// connections of a Node that gets it.
	// +optional
	Label *LabelBalancer `json:"label,omitempty"`

	// haproxy is for HAProxy, by its runtime API.
	// +optional
	HAProxy *HAProxyBalancer `json:"haproxy,omitempty"`

	// targetGroups is for target groups of AWS Elastic Load Balancing.
	// +optional
	TargetGroups *TargetGroupsBalancer `json:"targetGroups,omitempty"`

	// classicELB is for classic load balancers of AWS Elastic Load Balancing.
	// +optional
	ClassicELB *ClassicELBBalancer `json:"classicELB,omitempty"`

	// minMembers is how many other members of a pool must get new connections before a
	// Node is drained in it. With zero, the last member is drained, too.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinMembers *int32 `json:"minMembers,omitempty"`

	// deadlineSeconds is the longest time that a machine that leaves waits for the load balancer. It never waits
	// longer than half of its gracefulShutdownTimeout.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`

	// failurePolicy applies to a machine that leaves while it is unknown whether it is still a member: Ignore goes
	// on, and Fail retries until the deadline.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy fivespotv1.FailurePolicy `json:"failurePolicy,omitempty"`

	// controlPlane also detaches control plane Nodes. Otherwise they stay attached.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`

	// daemonSets are the DaemonSets whose pods serve the traffic that the load balancer sends to a Node, such as an
	// ingress controller. The Node is out while such a pod terminates, and until the next one is Ready.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	DaemonSets []ServingDaemonSet `json:"daemonSets,omitempty"`
}

// ServingDaemonSet is a DaemonSet of the workload cluster.
type ServingDaemonSet struct {
	// namespace is the namespace of the DaemonSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the DaemonSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// roll lets 5-Spot replace outdated pods of a DaemonSet whose updateStrategy is OnDelete: one Node after the
	// other, each while it is out.
	// +optional
	Roll bool `json:"roll,omitempty"`
}

// KubeProxyBalancer is a load balancer whose health check is kube-proxy's.
type KubeProxyBalancer struct {
	// waitSeconds is how long the load balancer needs to detect a failing health check: its interval times the number
	// of checks that must fail.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	WaitSeconds *int32 `json:"waitSeconds,omitempty"`
}

// LabelBalancer is a load balancer that reads labels.
type LabelBalancer struct {
	// waitSeconds is how long the load balancer needs to remove a Node. The load balancer does not report when it
	// has.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	WaitSeconds *int32 `json:"waitSeconds,omitempty"`
}

// HAProxyBalancer is one or more processes of HAProxy with the same servers.
type HAProxyBalancer struct {
	// endpoints are the addresses of the runtime API of each process, such as
	// tcp://192.0.2.1:9999, or unix:///run/haproxy/admin.sock in the manager's pod. They
	// need level admin.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^(tcp://[^/?#@]+:[0-9]+|unix:///.+)$')",message="must be like tcp://192.0.2.1:9999 or unix:///run/haproxy/admin.sock"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^tcp://[^/?#@]+:[0-9]+$') || self.matches(':0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$')",message="the port must be from 1 to 65535"
	Endpoints []string `json:"endpoints,omitempty"`

	// backends are the backends that can have Nodes. Empty means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9A-Za-z.:_-]*$')",message="HAProxy's names have letters, digits and .:_- alone"
	Backends []string `json:"backends,omitempty"`
}

// AWSAccess configures the access to AWS.
type AWSAccess struct {
	// region is the region of the load balancers, such as eu-central-1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]+(-[a-z0-9]+)*)?$')",message="must be the name of a region, such as eu-central-1"
	Region string `json:"region,omitempty"`

	// endpoint is the address of the service, such as a VPC endpoint. Empty is AWS' own. It is https, except on the
	// manager's own host.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^((https://[^/?#@]+|http://(localhost|127[.]0[.]0[.]1|[[]::1[]])(:[0-9]+)?)/?)?$')",message="must be like https://elasticloadbalancing.eu-central-1.amazonaws.com, without a path; http is for the manager's own host alone"
	Endpoint string `json:"endpoint,omitempty"`
}

// TargetGroupsBalancer are target groups.
//
// +kubebuilder:validation:XValidation:rule="!has(self.arns) || self.arns.all(arn, arn.split(':').size() < 4 || arn.split(':')[3] == self.region)",fieldPath=".arns",message="all must be in spec.targetGroups.region: use another LoadBalancer for another region"
type TargetGroupsBalancer struct {
	AWSAccess `json:",inline"`

	// arns are the target groups that can have Nodes. Empty means all of the region, which costs a call for each.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^arn:[^:]+:elasticloadbalancing:[^:]+:[0-9]{12}:targetgroup/.+$')",message="must be the ARN of a target group, such as arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/web/0123456789abcdef"
	ARNs []string `json:"arns,omitempty"`
}

// ClassicELBBalancer are classic load balancers.
type ClassicELBBalancer struct {
	AWSAccess `json:",inline"`

	// names are the load balancers that can have Nodes. Empty means all of the region.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	Names []string `json:"names,omitempty"`

	// waitSeconds is how long connections of a deregistered instance continue: the timeout of the load
	// balancer's connection draining. AWS does not report when they end.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	WaitSeconds *int32 `json:"waitSeconds,omitempty"`
}

// LoadBalancerStatus is the observed state of a load balancer.
type LoadBalancerStatus struct {
	// conditions report whether it answers, and how far rolls of DaemonSets have come.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LoadBalancer is a load balancer in front of the Nodes of a Cluster. 5-Spot detaches
// a Node from it before the Node leaves, and attaches the Node again if it stays.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=loadbalancers,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Deadline",type=integer,JSONPath=`.spec.deadlineSeconds`
// +kubebuilder:printcolumn:name="Reachable",type=string,JSONPath=`.status.conditions[?(@.type=='Reachable')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LoadBalancer struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// +required
	Spec LoadBalancerSpec `json:"spec,omitempty,omitzero"`

	// +optional
	Status LoadBalancerStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (b *LoadBalancer) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions sets the conditions.
func (b *LoadBalancer) SetConditions(c []metav1.Condition) { b.Status.Conditions = c }

// LoadBalancerList is a list of LoadBalancers.
//
// +kubebuilder:object:root=true
type LoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []LoadBalancer `json:"items"`
}

// SPDX-License-Identifier: Apache-2.0

package judge

import "strings"

// The senders of requests.
const (
	managerUser    = "system:serviceaccount:5spot-system:fivespot-manager"
	managerProgram = "5spot-controller-manager"
	agentUser      = "system:serviceaccount:5spot-system:reclaim-agent"
	agentProgram   = "5spot-reclaim-agent"
	// nodeOfToken is the user attribute with the Node that a token is bound to.
	nodeOfToken = "authentication.kubernetes.io/node-name"
)

// Names on objects.
const (
	departureAnnotation = "5spot.finos.org/departure"
	emergencyAnnotation = "5spot.finos.org/emergency-reclaim"
	reclaimedAnnotation = "5spot.finos.org/reclaimed"
	requestAnnotation   = "5spot.finos.org/reclaim-requested"

	scheduledMachineLabel = "5spot.finos.org/scheduled-machine"
	clusterLabel          = "cluster.x-k8s.io/cluster-name"
	controlPlaneLabel     = "cluster.x-k8s.io/control-plane"

	nodeNamespaceAnnotation = "cluster.x-k8s.io/cluster-namespace"
	nodeOwnerKindAnnotation = "cluster.x-k8s.io/owner-kind"
	nodeOwnerNameAnnotation = "cluster.x-k8s.io/owner-name"
	scheduledMachineKind    = "ScheduledMachine"
)

// hooks are the deletion hooks of 5-Spot.
var hooks = []string{
	"pre-drain.delete.hook.machine.cluster.x-k8s.io/5spot",
	"pre-terminate.delete.hook.machine.cluster.x-k8s.io/5spot",
}

// Reasons in a departure record.
const (
	killed    = "KillSwitch"
	reclaimed = "EmergencyReclaim"
)

// An Object is an object of one API server, identified by name.
type Object struct {
	// Cluster is the name of the audit log that has the object.
	Cluster string
	// Group and Resource are its kind, such as "cluster.x-k8s.io" and "machines".
	Group, Resource string
	// Namespace and Name identify it within its kind.
	Namespace, Name string
}

// String is the object for people.
func (o Object) String() string {
	parts := []string{o.Resource}
	if o.Group != "" {
		parts[0] += "." + o.Group
	}
	for _, part := range []string{o.Namespace, o.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return o.Cluster + ": " + strings.Join(parts, "/")
}

func (o Object) isMachine() bool { return o.Group == "cluster.x-k8s.io" && o.Resource == "machines" }

// clusters has the group and resource of a Cluster.
var clusters = Object{Group: "cluster.x-k8s.io", Resource: "clusters"}

func (o Object) isCluster() bool { return o.Group == clusters.Group && o.Resource == clusters.Resource }

// scheduledMachines has the group and resource of a ScheduledMachine.
var scheduledMachines = Object{Group: "5spot.finos.org", Resource: "scheduledmachines"}

func (o Object) isScheduledMachine() bool {
	return o.Group == scheduledMachines.Group && o.Resource == scheduledMachines.Resource
}

func (o Object) isNode() bool { return o.Group == "" && o.Resource == "nodes" }

func (o Object) isInfrastructure() bool { return o.Group == "infrastructure.cluster.x-k8s.io" }

// isHost reports whether the object stands for a host: the kind of an infrastructure machine ends in Machine.
func (o Object) isHost() bool { return o.ofProvider() && strings.HasSuffix(o.Resource, "machines") }

func (o Object) isBootstrap() bool { return o.Group == "bootstrap.cluster.x-k8s.io" }

// ofProvider reports whether the object belongs to a group for bootstrap configs, infrastructure, or both.
func (o Object) ofProvider() bool {
	return o.isInfrastructure() || o.isBootstrap() || o.Group == "k0smotron.io"
}

// ofLifecycle reports whether the object is a part of a machine.
func (o Object) ofLifecycle() bool { return o.isMachine() || o.isNode() || o.ofProvider() }

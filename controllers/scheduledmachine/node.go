// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Cluster API deletes the Node up to 20 s after its last attempt to drain it, and nothing shortens that. Until then the
// Node and its pods stand for a host that is gone. So the end of the infrastructure wakes this controller, which
// deletes the Node.

// nodeRead bounds the read of a Node, which comes from a cache. nodeWrite bounds its deletion. An unresponsive workload
// cluster must not block a worker for longer: Cluster API deletes the Node, too.
const (
	nodeRead  = 250 * time.Millisecond
	nodeWrite = time.Second
)

// observeNode reads the Node of a Machine that is being deleted without waits, once its infrastructure is gone. If it
// cannot read the Node, the state is Unknown, without an error.
func (r *Reconciler) observeNode(ctx context.Context, s *scope) {
	if !s.hostGone() {
		return
	}
	s.nodeState = lifecycle.Unknown
	if !s.connected || s.probes.ConsecutiveFailures > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodeRead)
	defer cancel()
	reader, err := r.ClusterCache.GetReader(ctx, workload.ClusterKey(s.scheduled))
	if err == nil {
		s.node, err = workload.Node(ctx, reader, s.acceptedHost.Node)
	}
	if err != nil {
		s.retryNode(ctx, fmt.Errorf("looking at Node: %w", err))
		return
	}
	s.nodeState = stateOfNode(s.node, s.children.Machine, s.acceptedHost.ProviderID)
}

// retryNode requests a retry after a back-off, because the Node could not be read or deleted. It requests none without
// a connection: the cluster cache sends an event when it connects.
func (s *scope) retryNode(ctx context.Context, err error) {
	if !workload.NotConnected(err) {
		s.nodeLater = true
		ctrl.LoggerFrom(ctx).Error(err, "Waiting for Node to go with its machine")
	}
}

// hostGone reports whether the infrastructure is known to be gone while a Machine with a Node remains, for which
// Cluster API skips all waits. Machines of a control plane are excluded: Cluster API alone handles their Nodes.
func (s *scope) hostGone() bool {
	m := s.children.Machine
	return m != nil && s.acceptedHost.Node != "" && !util.IsControlPlaneMachine(m) && s.children.Expedited() &&
		s.children.InfrastructureState() == lifecycle.Absent && len(s.children.Problems) == 0
}

// stateOfNode returns the state of the Node; nil means that there is none of that name. A Node belongs to the Machine
// if it has the accepted provider ID, and Cluster API's annotations on it name the Machine. Any other Node is Unknown.
func stateOfNode(node *corev1.Node, m *clusterv1.Machine, providerID string) lifecycle.Presence {
	switch {
	case node == nil:
		return lifecycle.Absent
	case providerID == "" || node.Spec.ProviderID != providerID,
		node.Annotations[clusterv1.MachineAnnotation] != m.Name,
		node.Annotations[clusterv1.ClusterNamespaceAnnotation] != m.Namespace:
		return lifecycle.Unknown
	default:
		return children.PresenceOf(node)
	}
}

// removeNode deletes the Node. A failure is retried and does not fail the departure: the machine is gone, and Cluster
// API deletes the Node, too.
func (r *Reconciler) removeNode(ctx context.Context, s *scope) {
	ctx, cancel := context.WithTimeout(ctx, nodeWrite)
	defer cancel()
	i := r.intent(s)
	i.Kind, i.Why = audit.NodePatch, "MachineGone"
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, workload.ClusterKey(s.scheduled))
	if err == nil {
		err = remote.For(i).Delete(ctx, s.node)
	}
	switch {
	case actuate.IsSuppressed(err):
	case err != nil:
		s.retryNode(ctx, err)
	case len(s.node.Finalizers) == 0:
		s.nodeState = lifecycle.Absent
		ctrl.LoggerFrom(ctx).Info("Deleted Node that outlived its machine", "Node", s.node.Name)
	}
}

// nodeGone reports whether the Node is gone while its Machine still exists.
func (s *scope) nodeGone() bool { return s.hostGone() && s.nodeState == lifecycle.Absent }

// lingering returns the message for a Machine whose infrastructure disappeared during a drain or a wait for volumes.
// Cluster API still reports the drain then. It returns "" for any other state.
func (s *scope) lingering() string {
	deleting := conditions.GetReason(s.children.Machine, clusterv1.MachineDeletingCondition)
	drains := deleting == clusterv1.MachineDeletingDrainingNodeReason || deleting == clusterv1.MachineDeletingWaitingForVolumeDetachReason
	if !drains || !s.hostGone() {
		return ""
	}
	gone := "The infrastructure is gone"
	if s.nodeGone() {
		gone = fmt.Sprintf("The infrastructure and Node %s are gone", s.acceptedHost.Node)
	}
	return gone + "; Cluster API removes the Machine at its next reconcile, which may take 20 s"
}

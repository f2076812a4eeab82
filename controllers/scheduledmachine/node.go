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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Cluster API does not look at a Machine for up to 20 s after it has tried to drain it. If
// its infrastructure goes meanwhile, that is what wakes us, and the Node goes at once.

// nodeRead bounds the read of a Node, which is in a cache, and nodeWrite its deletion. A
// worker has no more time for a workload cluster that does not answer: Cluster API deletes
// the Node, too.
const (
	nodeRead  = 250 * time.Millisecond
	nodeWrite = time.Second
)

// observeNode looks at the Node of a Machine that waits for nothing, once its infrastructure
// is known to be gone. A Node that cannot be seen is unknown, and no error.
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
		s.node, err = workload.Node(ctx, reader, s.believed.Node)
	}
	if err != nil {
		s.later(ctx, fmt.Errorf("looking at Node: %w", err))
		return
	}
	s.nodeState = stateOfNode(s.node, s.children.Machine, s.believed.ProviderID)
}

// later notes that the Node could not be read or deleted, which is tried again after a
// back-off. The connection to its cluster wakes us by itself.
func (s *scope) later(ctx context.Context, err error) {
	if !workload.NotConnected(err) {
		s.nodeLater = true
		ctrl.LoggerFrom(ctx).Error(err, "Waiting for Node to go with its machine")
	}
}

// hostGone reports whether a Machine with a Node is left of a machine whose infrastructure
// is known to be gone, and for which Cluster API waits no more. A Machine of a control plane
// is Cluster API's alone.
func (s *scope) hostGone() bool {
	m := s.children.Machine
	return m != nil && s.believed.Node != "" && !util.IsControlPlaneMachine(m) && s.children.Expedited() &&
		s.children.InfrastructureState() == lifecycle.Absent && len(s.children.Problems) == 0
}

// stateOfNode is what is known of the Node of a Machine, given the Node of its name, nil if
// there is none. It is the Machine's if it names the host that is believed to be the
// Machine's, and if Cluster API has written on it that it is.
func stateOfNode(node *corev1.Node, m *clusterv1.Machine, providerID string) lifecycle.Presence {
	switch {
	case node == nil:
		return lifecycle.Absent
	case providerID == "" || node.Spec.ProviderID != providerID,
		node.Annotations[clusterv1.MachineAnnotation] != m.Name,
		node.Annotations[clusterv1.ClusterNamespaceAnnotation] != m.Namespace:
		return lifecycle.Unknown
	case !node.DeletionTimestamp.IsZero():
		return lifecycle.Leaving
	default:
		return lifecycle.Present
	}
}

// removeNode deletes the Node. If that fails it is tried again, and is no failure of the
// departure: the machine is gone, and Cluster API deletes the Node, too.
func (r *Reconciler) removeNode(ctx context.Context, s *scope) {
	ctx, cancel := context.WithTimeout(ctx, nodeWrite)
	defer cancel()
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, workload.ClusterKey(s.scheduled))
	if err == nil {
		err = remote.For(r.onNode(s)).Delete(ctx, s.node)
	}
	switch {
	case actuate.IsSuppressed(err):
	case err != nil:
		s.later(ctx, err)
	case len(s.node.Finalizers) == 0:
		s.nodeState = lifecycle.Absent
		ctrl.LoggerFrom(ctx).Info("Deleted Node that outlived its machine", "Node", s.node.Name)
	}
}

// nodeGone reports whether the Node is known to be gone, although its Machine is there.
func (s *scope) nodeGone() bool { return s.hostGone() && s.nodeState == lifecycle.Absent }

// lingering says what a Machine waits for whose infrastructure went in the middle of a drain
// or a wait for volumes: Cluster API still reports that. Empty if it reports something else.
func (s *scope) lingering() string {
	deleting := conditions.GetReason(s.children.Machine, clusterv1.MachineDeletingCondition)
	drains := deleting == clusterv1.MachineDeletingDrainingNodeReason || deleting == clusterv1.MachineDeletingWaitingForVolumeDetachReason
	if !drains || !s.hostGone() {
		return ""
	}
	gone := "The infrastructure is gone"
	if s.nodeGone() {
		gone = fmt.Sprintf("The infrastructure and Node %s are gone", s.believed.Node)
	}
	return gone + "; Cluster API removes the Machine at its next reconcile, which may take 20 s"
}

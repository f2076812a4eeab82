// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// A topology, a GitOps tool or a restored backup makes a ScheduledMachine again that
// somebody deleted while the owner had the machine. What the owner said must not go with
// the object: it is left in a ReclaimedMachine, and taken over from there (ADR 0026).

// maxNode and maxNodeUID bound names and UIDs in a ReclaimedMachine.
const (
	maxNode    = 253
	maxNodeUID = 128
)

// bequeath leaves behind that the owner has the machine, before the object goes.
func (r *Reconciler) bequeath(ctx context.Context, sm *v1alpha1.ScheduledMachine) error {
	record, reclaimed := sm.Reclaimed()
	if !reclaimed {
		return nil
	}
	left := &v1alpha1.ReclaimedMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: sm.Namespace, Name: sm.Name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: sm.Spec.ClusterName},
		},
		Spec: v1alpha1.ReclaimedMachineSpec{
			ClusterName: sm.Spec.ClusterName,
			// Whoever wrote the record must not keep the object from going.
			Node: clip.To(record.Node, maxNode), NodeUID: clip.To(string(record.NodeUID), maxNodeUID), Of: clip.To(record.Of, maxNode),
			Reason: record.Reason, RequestedAt: record.RequestedAt,
		},
	}
	for _, ref := range sm.OwnerReferences {
		if ref.Kind == "Cluster" && ref.Name == sm.Spec.ClusterName { // It goes with its Cluster, also in clusterctl move.
			left.OwnerReferences = []metav1.OwnerReference{ref}
		}
	}
	err := r.Actuate.Create(ctx, left)
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		return err
	}
	return nil
}

// inherit takes over what an object of the same name has left behind, and turns the
// schedule off; the caller writes it. For a new object it asks the API server: a cache that
// is late would lend the machine. It returns what was left behind, nil if nothing was.
func (r *Reconciler) inherit(ctx context.Context, sm *v1alpha1.ScheduledMachine, isNew bool) (*v1alpha1.ReclaimedMachine, error) {
	reader := r.Reader
	if isNew {
		reader = r.Live
	}
	left := &v1alpha1.ReclaimedMachine{}
	switch err := reader.Get(ctx, client.ObjectKeyFromObject(sm), left); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for ReclaimedMachine: %w", err)
	}
	if sm.Annotations[v1alpha1.InheritedAnnotation] == string(left.UID) {
		return left, nil
	}
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.InheritedAnnotation, string(left.UID))
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.ReclaimedAnnotation, left.Record().Served(r.Clock.Now()).String())
	sm.Spec.Schedule.Enabled = new(false)
	ctrl.LoggerFrom(ctx).Info("Keeping machine with its owner, as before it was deleted", "reason", left.Record().Why())
	return left, nil
}

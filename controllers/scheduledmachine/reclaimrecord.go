// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
)

// A topology, a GitOps tool or a restored backup may recreate a ScheduledMachine that was deleted while the owner had
// the machine. The owner's request must survive the deletion. A ReclaimedMachine stores it, and the new
// ScheduledMachine adopts it (ADR 0026).

// maxNode and maxNodeUID bound names and UIDs in a ReclaimedMachine.
const (
	maxNode    = 253
	maxNodeUID = 128
)

// saveReclaimRecord saves the owner's reclaim in a ReclaimedMachine before the ScheduledMachine is deleted.
func (r *Reconciler) saveReclaimRecord(ctx context.Context, sm *v1alpha1.ScheduledMachine) error {
	record, reclaimed := sm.Reclaimed()
	if !reclaimed {
		return nil
	}
	saved := &v1alpha1.ReclaimedMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: sm.Namespace, Name: sm.Name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: sm.Spec.ClusterName},
			// Garbage collection and clusterctl move follow the owner.
			OwnerReferences: children.ClusterOwner(sm),
		},
		Spec: v1alpha1.ReclaimedMachineSpec{
			ClusterName: sm.Spec.ClusterName,
			// Overlong values in the record are cut. Otherwise the API server would reject the object and block the
			// deletion.
			Node: clip.To(record.Node, maxNode), NodeUID: clip.To(string(record.NodeUID), maxNodeUID), PropagatedFrom: clip.To(record.PropagatedFrom, maxNode),
			Reason: record.Reason, RequestedAt: record.RequestedAt, StoredAt: record.StoredAt, Host: storedNames(sm, record.Node),
		},
	}
	err := r.Actuate.Create(ctx, saved)
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		return err
	}
	return nil
}

// storedNames returns the known names of the host of sm. node is the Node of the reclaim, which is deleted with the
// Machine.
func storedNames(sm *v1alpha1.ScheduledMachine, node string) []v1alpha1.HostName {
	const limit = 32 // The limit of the API.
	ids := append(claimOf(sm, wantedNames(sm)).IDs(), validIDs(nodeName(sm, node))...)
	return hostNames(slices.DeleteFunc(ids, func(id hosts.ID) bool { return id.Kind == hosts.MachineID }), limit)
}

// reclaimedClaims returns one claim for each ReclaimedMachine in the namespace of sm. It omits a ReclaimedMachine that
// is newer than since: sm received that request while both objects existed, and a person may have lent sm again. If sm
// has never been reconciled, it lists from the API server, because sm may have been renamed just now.
func (r *Reconciler) reclaimedClaims(ctx context.Context, sm *v1alpha1.ScheduledMachine, since time.Time) ([]hosts.Claim, error) {
	reader := r.Reader
	if sm.Status.ObservedGeneration == 0 {
		reader = r.Live
	}
	list := &v1alpha1.ReclaimedMachineList{}
	if err := reader.List(ctx, list, client.InNamespace(sm.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for ReclaimedMachines of the same host: %w", err)
	}
	var claims []hosts.Claim
	for i := range list.Items {
		saved := &list.Items[i]
		received := !since.IsZero() && since.Before(saved.CreationTimestamp.Time)
		if saved.Name == sm.Name || received { // adoptReclaimRecord adopts the ReclaimedMachine of the same name.
			continue
		}
		claims = append(claims, hosts.Claim{Namespace: saved.Namespace, Name: saved.Name, Wants: idsOf(saved.Spec.Host), Request: string(saved.UID)})
	}
	return claims, nil
}

// ofReclaimed maps a ReclaimedMachine to requests. It returns the ScheduledMachine of the same name, which adopts it
// and may be older than it. It also returns other ScheduledMachines of the same host in its namespace: they may use the
// host after it is deleted.
func (r *Reconciler) ofReclaimed(ctx context.Context, obj client.Object) []ctrl.Request {
	saved := obj.(*v1alpha1.ReclaimedMachine)
	requests := []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(saved)}}
	named, _, err := r.namedHost(ctx, saved, idsOf(saved.Spec.Host))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines of host")
	}
	for _, sm := range named {
		if sm.Namespace == saved.Namespace {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)})
		}
	}
	return requests
}

// adoptReclaimRecord adopts the ReclaimedMachine of the same name: it copies the record to sm and disables the
// schedule. The caller writes sm. For a new object it reads from the API server, because a stale cache would lend the
// machine. It returns the ReclaimedMachine, nil if there is none.
func (r *Reconciler) adoptReclaimRecord(ctx context.Context, sm *v1alpha1.ScheduledMachine, isNew bool) (*v1alpha1.ReclaimedMachine, error) {
	reader := r.Reader
	if isNew {
		reader = r.Live
	}
	saved := &v1alpha1.ReclaimedMachine{}
	switch err := reader.Get(ctx, client.ObjectKeyFromObject(sm), saved); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for ReclaimedMachine: %w", err)
	}
	if sm.Annotations[v1alpha1.ReclaimedMachineUIDAnnotation] == string(saved.UID) {
		return saved, nil
	}
	metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.ReclaimedMachineUIDAnnotation, string(saved.UID))
	sm.SetServedReclaim(saved.Record().Served(r.Clock.Now()))
	sm.Spec.Schedule.Enabled = new(false)
	ctrl.LoggerFrom(ctx).Info("Keeping machine with its owner, as before it was deleted", "reason", saved.Record().Why())
	return saved, nil
}

// restoreReclaim restores the record of a served reclaim that a replace of the object removed, for example kubectl
// replace with the original manifest. A replace also removes the finalizer; resuming the machine does not. Status
// survives a replace. If the schedule lends the machine again, the condition LentAgain names the writer instead.
func (r *Reconciler) restoreReclaim(ctx context.Context, sm *v1alpha1.ScheduledMachine) {
	if _, served := sm.ServedReclaim(); served || sm.BeingReclaimed() {
		return
	}
	since := r.Clock.Now()
	switch shown := conditions.Get(sm, v1alpha1.ScheduledCondition); {
	case shown != nil && shown.Reason == v1alpha1.EmergencyReclaimDisabledScheduleReason:
		since = shown.LastTransitionTime.Time
	case sm.Status.Phase != v1alpha1.PhaseEmergencyRemove: // A request that was served just now is newer than the status.
		return
	}
	if sm.Spec.ResumeAfterReclaim != v1alpha1.ResumeOnResume && sm.ScheduleEnabled() {
		lending.NoteReplaced(sm, r.Clock.Now())
		return
	}
	sm.SetServedReclaim(v1alpha1.RestoredRequest().Served(since))
	ctrl.LoggerFrom(ctx).Info("Restored the record of a reclaim, which was lost when the ScheduledMachine was replaced")
}

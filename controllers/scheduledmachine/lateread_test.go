// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// lateReader shows an old ScheduledMachine.
type lateReader struct {
	client.Reader
	old *v1alpha1.ScheduledMachine
}

func (r lateReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if sm, ok := obj.(*v1alpha1.ScheduledMachine); ok {
		r.old.DeepCopyInto(sm)
		return nil
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}

// TestAnUrgentRecordOutlivesALateRead reads the ScheduledMachine before the owner's request, and the Machine after its
// record. Package reclaim deletes the Machine next.
func TestAnUrgentRecordOutlivesALateRead(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	old := w.sm.DeepCopy()
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, "{}")
	})
	m, _ := w.machine()
	w.Edit(m, func() { children.Record(m, v1alpha1.NewDeparture(v1alpha1.ReclaimedByOwner, w.clock.Now(), "a")) })
	record := m.Annotations[v1alpha1.DepartureAnnotation]
	w.r.Reader = lateReader{w.r.Reader, old}
	if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}); err != nil {
		t.Fatal(err)
	}
	if m, _ = w.machine(); record == "" || m.Annotations[v1alpha1.DepartureAnnotation] != record {
		t.Errorf("the record %q is %q now", record, m.Annotations[v1alpha1.DepartureAnnotation])
	}
}

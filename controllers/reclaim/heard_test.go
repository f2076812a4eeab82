// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestDisableScheduleTurnsItOffWhateverTheCacheShows covers a schedule that is disabled when the owner's request
// arrives. It is enabled while the cache is stale.
func TestDisableScheduleTurnsItOffWhateverTheCacheShows(t *testing.T) {
	w := newWorld(t)
	w.Edit(w.sm, func() { w.sm.Spec.Schedule.Enabled = new(false) })
	w.annotate("true")
	for range 4 {
		_, _ = w.reconcile()
	}
	if m := w.machine(); m == nil || m.DeletionTimestamp.IsZero() {
		t.Fatal("not ejected")
	}
	w.gone()
	reads, _ := w.Late(w.sm)
	w.r = w.reconciler(w.Recorded(reads))
	w.Edit(w.sm, func() { w.sm.Spec.Schedule.Enabled = new(true) })
	for range 3 {
		_, _ = w.reconcile()
	}
	w.Read(w.sm)
	if w.sm.ScheduleEnabled() && !w.sm.BeingReclaimed() {
		t.Fatalf("request forgotten, schedule on: lent again. %v", w.sm.Annotations[v1alpha1.ReclaimedAnnotation])
	}
}

// TestAnOwnerIsServedWhileClusterAPIIsDown makes Cluster API's webhook reject each patch of a Machine. The webhook is
// not called for deletions.
func TestAnOwnerIsServedWhileClusterAPIIsDown(t *testing.T) {
	w := newWorld(t)
	w.refuse("patch Machine", func() error {
		return apierrors.NewInternalError(errors.New(`failed calling webhook "default.machine.cluster.x-k8s.io": connect: connection refused`))
	})
	w.annotate("true")
	for range 10 {
		_, _ = w.reconcile()
	}
	for range 20 {
		if after := w.r.RetriedAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}); after > time.Second {
			t.Fatalf("what the API server refuses is tried again after %v", after)
		}
	}
	if w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("the owner asked, and the infrastructure was never deleted")
	}
	if w.machine().DeletionTimestamp.IsZero() {
		t.Error("the Machine was never deleted, although nothing refuses that")
	}
	if w.Read(w.node); !w.tainted(reclaimapi.NodeTaint) {
		t.Error("the pods of the host wait for Cluster API, too")
	}
}

// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// refuse makes each write of a kind fail with err.
func (w *world) refuse(write string, err func() error) {
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == write {
			return err(), nil
		}
		return nil, nil
	}
}

func (w *world) stalled() string {
	return w.tracker.StuckReason(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
}

func TestAnOwnerWhoWaitsInVainIsSeen(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.refuse("delete Machine", func() error {
		n++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "box-machine", fmt.Errorf("nobody deletes today, request %d", n))
	})
	w.annotate("true")
	for range 3 {
		if _, err := w.reconcile(); !apierrors.IsForbidden(err) {
			t.Fatalf("got %v, want the refusal, so that it is tried again", err)
		}
	}
	if why := w.stalled(); !strings.Contains(why, "nobody deletes today, request 1") {
		t.Errorf("the cause is missing, or its text changes: %q", why)
	}
	notes := w.events()
	var told []string
	for _, note := range notes {
		if strings.HasPrefix(note, "Warning EmergencyReclaimStalled ") {
			told = append(told, note)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "nobody deletes today") {
		t.Errorf("people must be told once: %q", notes)
	}
	w.Fail = nil
	w.resync()
	if why := w.stalled(); why != "" || w.machine().DeletionTimestamp.IsZero() {
		t.Errorf("it does not get on: %q", why)
	}
}

// TestAConflictThatLastsCostsOneTryPerBackOff covers a webhook that answers 409.
func TestAConflictThatLastsCostsOneTryPerBackOff(t *testing.T) {
	w := newWorld(t)
	w.refuse("patch Machine", func() error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "box-machine", errors.New("not now"))
	})
	w.annotate("true")
	begin := w.clock.Now()
	for w.clock.Since(begin) < time.Minute {
		next, err := w.reconcile()
		if err == nil && next.RequeueAfter <= 0 {
			t.Fatalf("after %v: no requeue without a wait: %v", w.clock.Since(begin), next)
		}
		// An event enqueues it every 10 ms.
		w.clock.SetTime(w.clock.Now().Add(max(10*time.Millisecond, min(next.RequeueAfter, time.Second))))
		if err == nil && w.clock.Since(begin) < 2*time.Second && w.stalled() != "" {
			t.Fatalf("a late cache is no news: %s", w.stalled())
		}
	}
	// 50 ms, doubled up to 1 s, gives 6 tries in the first 2 s, and then one a second.
	tries := 0
	for _, write := range w.Writes {
		if write == "patch Machine" {
			tries++
		}
	}
	if tries < 55 || tries > 65 {
		t.Errorf("%d tries in a minute: %v", tries, w.Writes)
	}
	if !strings.Contains(w.stalled(), "not now") {
		t.Errorf("a persistent conflict is not reported: %q", w.stalled())
	}
	w.Fail = nil
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.resync()
	if w.machine().DeletionTimestamp.IsZero() || w.stalled() != "" {
		t.Errorf("it does not get on: %q", w.stalled())
	}
}

// TestAnOutageAtTheEndDelaysTheOwnerByASecond covers an API server that fails while 5-Spot confirms that the Machine is
// gone.
func TestAnOutageAtTheEndDelaysTheOwnerByASecond(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	w.settle()
	w.gone()
	down := true
	live := w.Recorded(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if down {
			return apierrors.NewServerTimeout(schema.GroupResource{Resource: "machines"}, "get", 1)
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
	w.r.Children.Live = live
	for range 20 {
		if _, err := w.reconcile(); err == nil {
			t.Fatal("the failure is not returned, so that nothing retries it")
		}
		if after := w.r.RetriedAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}); after > time.Second {
			t.Fatalf("a failed read is retried after %v", after)
		}
	}
	if !strings.Contains(w.stalled(), "could not be completed") {
		t.Errorf("the stall is not reported: %q", w.stalled())
	}
	down = false
	w.resync()
	if w.sm.ScheduleEnabled() || w.stalled() != "" {
		t.Errorf("it does not get on: %q", w.stalled())
	}
}

// TestAReleasedScheduledMachineIsNoStall deletes a ScheduledMachine during its reclaim. The other controller releases
// it, and this controller's cache still shows it.
func TestAReleasedScheduledMachineIsNoStall(t *testing.T) {
	w := newWorld(t)
	before, _ := measured(t)
	w.annotate("true")
	w.settle()
	w.gone()
	reads, _ := w.Late(w.sm)
	w.Must(w.Client.Delete(t.Context(), w.sm.DeepCopy()))
	w.r = w.reconciler(w.Recorded(reads))
	w.events()
	if next, err := w.reconcile(); err != nil || !next.IsZero() {
		t.Errorf("it is retried: %v, %v", next, err)
	}
	if notes := w.events(); len(notes) > 0 || w.stalled() != "" {
		t.Errorf("a stall is reported: %q, %q", notes, w.stalled())
	}
	if after, _ := measured(t); after["gone"]-before["gone"] != 1 {
		t.Errorf("the end of the reclaim is measured %d times", after["gone"]-before["gone"])
	}
}

// conflictOfServedRequest leaves a served request on the Node, whose patches are conflicts.
func (w *world) conflictOfServedRequest() {
	w.Helper()
	w.annotate("true")
	served := v1alpha1.ReclaimRecord{Node: w.node.Name, NodeUID: w.node.UID, RequestedAt: w.node.Annotations[reclaimapi.RequestedAtAnnotation]}
	w.Edit(w.sm, func() {
		metav1.SetMetaDataAnnotation(&w.sm.ObjectMeta, v1alpha1.ReclaimedAnnotation, served.String())
	})
	w.refuse("patch Node", func() error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, w.node.Name, errors.New("not now"))
	})
}

// TestConflictsOfANodeEndWithItsRequest covers many conflicts while a served request is cleared. The request is then
// removed by another party, and comes back.
func TestConflictsOfANodeEndWithItsRequest(t *testing.T) {
	w := newWorld(t)
	w.conflictOfServedRequest()
	for i := range 6 {
		if next, err := w.reconcile(); err != nil || next.RequeueAfter <= 0 {
			t.Fatalf("conflict %d: %v, %v", i+1, next, err)
		}
		w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	}
	w.Edit(w.node, func() { w.node.Annotations = nil })
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	w.annotate("true")
	if next, err := w.reconcile(); err != nil || next.RequeueAfter != wake.QuietRetry {
		t.Errorf("the earlier conflicts still count: %v, %v", next, err)
	}
}

// TestAConflictOfANodeDelaysNoOwner covers a webhook of the workload cluster that answers 409 while a served request
// is cleared. Meanwhile a person gives the machine back.
func TestAConflictOfANodeDelaysNoOwner(t *testing.T) {
	w := newWorld(t)
	w.conflictOfServedRequest()
	tries := func() int { return strings.Count(strings.Join(w.Writes, ","), "patch Node") }
	for range 10 {
		_, _ = w.reconcile()
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
	if n := tries(); n < 4 || n > 7 {
		t.Errorf("%d tries in 10s, want one per back-off: %v", n, w.Writes)
	}
	w.askAsPerson()
	if _, err := w.reconcile(); err != nil || w.machine().DeletionTimestamp.IsZero() {
		t.Errorf("the owner waits for a Node: %v, %v", err, w.Writes)
	}
}

// TestADeletionMayTakeAsLongAsAWebhook checks that no deletion is canceled before an API server gives up on an
// admission webhook.
func TestADeletionMayTakeAsLongAsAWebhook(t *testing.T) {
	w := newWorld(t)
	w.r = w.reconciler(interceptor.NewClient(w.Client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if end, ok := ctx.Deadline(); ok && time.Until(end) < 10*time.Second {
				t.Errorf("%T %s has only %v", obj, obj.GetName(), time.Until(end))
			}
			return c.Delete(ctx, obj, opts...)
		},
	}))
	w.annotate("true")
	w.settle()
	if w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("the infrastructure is not deleted")
	}
}

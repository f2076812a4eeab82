// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"strconv"
	"testing"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
)

func TestUrgentObjectsComeFirst(t *testing.T) {
	q := priorityqueue.New[ctrl.Request](t.Name())
	defer q.ShutDown()
	h := wake.PrioritizeUrgent(&handler.EnqueueRequestForObject{}, func(o client.Object) bool { return o.GetName() == "asked" })
	object := func(name string) *v1alpha1.ScheduledMachine {
		sm := &v1alpha1.ScheduledMachine{}
		sm.Name, sm.ResourceVersion = name, "1"
		return sm
	}
	h.Create(t.Context(), event.CreateEvent{Object: object("listed"), IsInInitialList: true}, q)
	later := object("changed")
	later.ResourceVersion = "2"
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("changed"), ObjectNew: later}, q)
	h.Generic(t.Context(), event.GenericEvent{Object: object("generic")}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: object("deleted")}, q)
	h.Create(t.Context(), event.CreateEvent{Object: object("asked"), IsInInitialList: true}, q)
	for i, want := range []string{"asked", "changed", "generic", "deleted", "listed"} {
		got, priority, _ := q.GetWithPriority()
		if got.Name != want {
			t.Errorf("%d: %s comes at priority %d, want %s", i, got.Name, priority, want)
		}
		q.Done(got)
	}
}

// TestUrgentRequestsComeFirst has a thousand departures in the queue of a controller, and a kill switch that is turned on
// after them and is tried again.
func TestUrgentRequestsComeFirst(t *testing.T) {
	opts := workers.New(clock.RealClock{}).Options(80)
	wake.PrioritizeUrgentRequests(&opts, func(req ctrl.Request) bool { return req.Name == "killed" })
	q, ok := opts.NewQueue(t.Name(), wake.Backoff()).(priorityqueue.PriorityQueue[ctrl.Request])
	if !ok {
		t.Fatal("the queue has no priorities")
	}
	defer q.ShutDown()
	request := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}
	}
	for i := range 1000 {
		q.Add(request(strconv.Itoa(i)))
	}
	for name, add := range map[string]func(ctrl.Request){
		"Event": q.Add,
		"Retry": func(req ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{Priority: new(0)}, req) },
	} {
		add(request("killed"))
		got, priority, _ := q.GetWithPriority()
		if got.Name != "killed" {
			t.Errorf("%s: %s comes first, at priority %d", name, got.Name, priority)
		}
		q.Done(got)
	}
}

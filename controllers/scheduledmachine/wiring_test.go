// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
)

// recordingQueue records the priorities of the requests that are added.
type recordingQueue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	mu         sync.Mutex
	priorities []int
}

func (q *recordingQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	q.mu.Lock()
	for range requests {
		q.priorities = append(q.priorities, ptr.Deref(o.Priority, 0))
	}
	q.mu.Unlock()
	q.PriorityQueue.AddWithOpts(o, requests...)
}

// taken returns the priorities since the last call.
func (q *recordingQueue) taken() []int {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() { q.priorities = nil }()
	return q.priorities
}

// run runs the controller in a manager with the given sync period.
func (w *world) run(again time.Duration) *recordingQueue {
	w.Helper()
	registry := metrics.Registry // A registry accepts each metric once.
	metrics.Registry = prometheus.NewRegistry()
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: w.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{SyncPeriod: &again, DefaultNamespaces: map[string]cache.Config{w.sm.Namespace: {}}},
	})
	w.Must(err)
	w.Must(scheduledmachine.AddIndexes(w.Context(), mgr))
	c := mgr.GetClient()
	r := &scheduledmachine.Reconciler{
		Clock: w.clock, Reader: c, Live: mgr.GetAPIReader(), Actuate: actuate.New(c), Recorder: w.recorder, ReclaimTracker: &wake.ReclaimTracker{},
		Children:     children.Reader{Cached: c, Live: mgr.GetAPIReader()},
		ClusterCache: clustercache.NewFakeClusterCache(w.Client, client.ObjectKeyFromObject(w.cluster)),
	}
	opts := workers.New(clock.RealClock{}).Options(1)
	opts.SkipNameValidation = new(true)
	newQueue, q := opts.NewQueue, &recordingQueue{}
	opts.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
		q.PriorityQueue = newQueue(name, limiter).(priorityqueue.PriorityQueue[ctrl.Request])
		return q
	}
	w.Must(r.SetupWithManager(mgr, "", opts))
	ctx, stop := context.WithCancel(w.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			w.Errorf("running manager: %v", err)
		}
	})
	w.Cleanup(func() { stop(); ended.Wait(); metrics.Registry = registry })
	return q
}

// becomes waits until so returns true.
func (w *world) becomes(what string, so func() bool) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return so(), nil
	})
	if err != nil {
		w.Fatalf("%s: phase %s", what, w.sm.Status.Phase)
	}
}

// TestRequestsOfAKillSwitchComeFirst covers events of the ScheduledMachine and of its Machine, and retries.
func TestRequestsOfAKillSwitchComeFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(time.Hour))
	q := w.run(time.Hour)
	w.becomes("the machine joins", func() bool { _, made := w.machine(); w.Read(w.sm); return made && w.sm.Status.MachineRef != nil })
	m, _ := w.machine()
	w.hold(m)
	if all := q.taken(); slices.Max(all) >= urgent {
		t.Errorf("priorities of an ordinary machine: %v", all)
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
	w.becomes("the machine leaves", func() bool {
		m, _ := w.machine()
		return w.Read(w.sm) && w.sm.Status.Phase == v1alpha1.PhaseTerminated && !m.DeletionTimestamp.IsZero()
	})
	q.taken()
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionFalse, "Deleting", "")
	var all []int
	w.becomes("the event of the Machine arrives", func() bool { all = append(all, q.taken()...); return len(all) > 0 })
	w.edit(func(sm *v1alpha1.ScheduledMachine) { metav1.SetMetaDataAnnotation(&sm.ObjectMeta, "test", "a") })
	w.becomes("the next reconcile is enqueued", func() bool { all = append(all, q.taken()...); return len(all) > 3 })
	if slices.Min(all) < urgent {
		t.Errorf("priorities of a kill switch: %v, want %d each", all, urgent)
	}
}

// urgent is the priority of urgent requests.
const urgent = 100

// TestAClockThatWasSetIsCaughtUpWith suspends the manager's host until the window is open. The timer for the edge still
// has an hour; the next resync detects the change.
func TestAClockThatWasSetIsCaughtUpWith(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(-time.Hour))
	w.run(time.Second)
	w.becomes("nothing is wanted yet", func() bool { w.Read(w.sm); return w.sm.Status.Phase == v1alpha1.PhaseInactive })
	w.clock.SetTime(monday.Add(time.Minute))
	w.becomes("the machine joins", func() bool { _, made := w.machine(); w.Read(w.sm); return made })
}

// TestEventsOfProviderObjectsEnqueueTheMachine checks the watches that start when a kind is first used.
func TestEventsOfProviderObjectsEnqueueTheMachine(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(time.Hour))
	w.run(time.Hour)
	w.becomes("the machine joins", func() bool { _, made := w.machine(); w.Read(w.sm); return made && w.sm.Status.MachineRef != nil })
	for what, read := range map[string]func() (*unstructured.Unstructured, bool){"bootstrap config": w.bootstrap, "infrastructure machine": w.infra} {
		u, _ := read()
		w.Edit(u, func() { u.SetLabels(nil) })
		w.becomes("the label of the "+what+" is restored", func() bool {
			u, made := read()
			return made && u.GetLabels()[v1alpha1.ScheduledMachineLabel] == w.sm.Name
		})
	}
}

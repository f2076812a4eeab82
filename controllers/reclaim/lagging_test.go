// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// TestEachStepIsTakenOnceOnALateCache covers owners' requests while the manager's cache shows each version of
// ScheduledMachine, Machine and Node late. A person writes every second request.
func TestEachStepIsTakenOnceOnALateCache(t *testing.T) {
	before, _ := measured(t)
	emergencies := testenv.OnLateCaches(t, map[string]int{
		"sent: patch ScheduledMachine": 2, "sent: patch Machine": 1, "sent: delete Machine": 1, "audited as success": 4,
		"Event EmergencyReclaim": 1, "Event EmergencyReclaimDisabledSchedule": 1,
	}, func(seed uint64) map[string]int { return emergencyOnALateCache(t, seed) })
	after, _ := measured(t)
	for _, stage := range []string{"seen", "deleted", "gone"} {
		if n := after[stage] - before[stage]; n != emergencies {
			t.Errorf("stage %s is measured %d times", stage, n)
		}
	}
}

func emergencyOnALateCache(t *testing.T, seed uint64) map[string]int {
	t.Helper()
	objects := family(t, "box", builder.GenericInfrastructureMachineKind, nil)
	machine := objects[1].(*clusterv1.Machine)
	machine.UID = "uid-of-machine"
	machine.Status.NodeRef.Name = "box"
	objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box", UID: "uid-of-node", Annotations: map[string]string{
		reclaimapi.RequestedAnnotation: "true", reclaimapi.ReasonAnnotation: "process-match: java", reclaimapi.RequestedAtAnnotation: "2026-04-20T21:45:00Z",
	}}})
	if seed%2 == 1 {
		objects[0].SetAnnotations(map[string]string{v1alpha1.EmergencyReclaimAnnotation: v1alpha1.PersonsRequest("box", "", noon).String()})
		objects[3].SetAnnotations(nil)
	}
	store := inMemory(t, objects...)
	cache, lines := testenv.NewLagging(t, store, seed), &bytes.Buffer{}
	now, recorder := clocktesting.NewFakePassiveClock(noon), events.NewFakeRecorder(100)
	r := (&reclaim.Reconciler{
		Clock: now, Reader: cache.Client, Actuate: actuate.NewGated(&actuate.Gate{Log: audit.New(lines)}, cache.Client), Recorder: recorder, Hooks: children.BypassHooks, ReclaimTracker: &wake.ReclaimTracker{},
		Children:     children.Reader{Cached: cache.Client, Live: store},
		ClusterCache: clustercache.NewFakeClusterCache(cache.Client, client.ObjectKey{Namespace: "lab", Name: "lab"}, reclaim.NodesWatch),
	}).WithoutWatches()
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(objects[0])}
	cache.Settle(r, req, now, func(res ctrl.Result) bool {
		return clusterAPIReleases(t, cache, store, objects[1:3]) || res.RequeueAfter > 0
	})
	sm := &v1alpha1.ScheduledMachine{}
	if err := store.Get(t.Context(), req.NamespacedName, sm); err != nil || sm.ScheduleEnabled() || sm.BeingReclaimed() {
		t.Fatalf("not served: %v, %+v", err, sm)
	}
	return cache.Counts(recorder, lines)
}

// clusterAPIReleases plays the part of Cluster API and a provider, and reports whether it wrote.
func clusterAPIReleases(t *testing.T, cache *testenv.Lagging, store client.Client, objects []client.Object) (did bool) {
	t.Helper()
	for _, obj := range objects {
		var now client.Object = &clusterv1.Machine{}
		c := client.Client(cache.Client)
		if u, ok := obj.(*unstructured.Unstructured); ok {
			now, c = u.DeepCopy(), store
		}
		if err := store.Get(t.Context(), client.ObjectKeyFromObject(obj), now); err != nil || now.GetDeletionTimestamp().IsZero() {
			continue
		}
		now.SetFinalizers(nil)
		if err := c.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		did = true
	}
	return did
}

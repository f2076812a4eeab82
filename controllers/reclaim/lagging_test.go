// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
)

// TestEachStepIsTakenOnceOnALateCache has 500 owners, or 50 with -short, request their machines while the manager's
// cache shows each version of ScheduledMachine, Machine and Node late.
func TestEachStepIsTakenOnceOnALateCache(t *testing.T) {
	emergencies := uint64(500)
	if testing.Short() {
		emergencies = 50
	}
	before, _ := measured(t)
	wrong := map[string]int{}
	for i := range emergencies {
		for problem := range emergencyOnALateCache(t, i) {
			wrong[problem]++
		}
	}
	for problem, n := range wrong {
		t.Errorf("%s: %d of %d", problem, n, emergencies)
	}
	after, _ := measured(t)
	for _, stage := range []string{"seen", "deleted", "gone"} {
		if n := after[stage] - before[stage]; n != emergencies {
			t.Errorf("stage %s is measured %d times", stage, n)
		}
	}
}

// emergencyOnALateCache returns what was done more or less often than once.
func emergencyOnALateCache(t *testing.T, seed uint64) map[string]bool {
	t.Helper()
	objects := family(t, "box", builder.GenericInfrastructureMachineKind, nil)
	machine := objects[1].(*clusterv1.Machine)
	machine.UID = "uid-of-machine"
	machine.Status.NodeRef.Name = "box"
	objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box", UID: "uid-of-node", Annotations: map[string]string{
		reclaimapi.RequestedAnnotation: "true", reclaimapi.ReasonAnnotation: "process-match: java", reclaimapi.RequestedAtAnnotation: "2026-04-20T21:45:00Z",
	}}})
	store := inMemory(t, objects...)
	cache, lines := testenv.NewLagging(t, store, seed), &bytes.Buffer{}
	now, recorder := clocktesting.NewFakePassiveClock(noon), events.NewFakeRecorder(100)
	r := (&reclaim.Reconciler{
		Clock: now, Reader: cache.Client, Actuate: actuate.Behind(&actuate.Gate{Log: audit.New(lines)}, cache.Client), Recorder: recorder, Hooks: children.BypassHooks,
		Children:     children.Reader{Cached: cache.Client, Live: store},
		ClusterCache: clustercache.NewFakeClusterCache(cache.Client, client.ObjectKey{Namespace: "lab", Name: "lab"}),
	}).WithoutWatches()
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(objects[0])}
	for settled := 0; settled < 5; settled++ {
		n := len(cache.Sent)
		res, err := r.Reconcile(t.Context(), req)
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		now.SetTime(now.Now().Add(max(res.RequeueAfter, 10*time.Millisecond)))
		if err != nil || len(cache.Sent) > n || !cache.CaughtUp() || res.RequeueAfter > 0 || clusterAPIReleases(t, cache, store, objects[1:3]) {
			settled = 0
		}
	}
	sm := &v1alpha1.ScheduledMachine{}
	if err := store.Get(t.Context(), req.NamespacedName, sm); err != nil || sm.ScheduleEnabled() || sm.BeingReclaimed() {
		t.Fatalf("not served: %v, %+v", err, sm)
	}
	times := map[string]int{}
	for _, change := range cache.Sent {
		times["sent: "+change]++
	}
	close(recorder.Events)
	for e := range recorder.Events {
		times[fmt.Sprint("Event ", strings.Fields(e)[1])]++
	}
	final := map[string]int{}
	for line := range strings.Lines(lines.String()) {
		l, err := audit.Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if l.Outcome.Final() {
			final[l.ActionID+l.UID]++
		}
	}
	for _, n := range final {
		times["final audit line"] = max(n, times["final audit line"])
	}
	wrong := map[string]bool{}
	for what, want := range map[string]int{
		"sent: patch ScheduledMachine": 2, "sent: patch Machine": 1, "sent: delete Machine": 1, "final audit line": 1,
		"Event EmergencyReclaim": 1, "Event EmergencyReclaimDisabledSchedule": 1,
	} {
		if times[what] != want {
			wrong[fmt.Sprintf("%s: %d, want %d", what, times[what], want)] = true
		}
	}
	return wrong
}

// clusterAPIReleases plays Cluster API and a provider, and reports whether there was something to do.
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

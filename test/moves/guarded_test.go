// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestTheDrainMeetsTheGuard has an operator that takes longer than the machine waits. Cluster API drains until the pod
// has moved, and its condition shows the cause. Records about an earlier pod with the same name must not make it count
// this pod as gone.
func TestTheDrainMeetsTheGuard(t *testing.T) {
	system.Long(t)
	t.Parallel()
	const name = "guarded"
	before := newScene(t, shared.lab, system.Guarded)
	before.writeOfAnother(name)
	d := newDatabase(t, system.Guarded, name, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "200s" })
	d.SetSchedule(d.leaving, specs.Closed())
	d.waitHeld()

	says := d.waitRefused("", 1)
	t.Logf("the Machine says: %s", says)
	d.waitRefused(says, 3)
	if reason := conditions.GetReason(d.machine, v1alpha1.ReadyForDeletionCondition); reason != v1alpha1.StepsSkippedReason {
		t.Errorf("ReadyForDeletion has the reason %q", reason)
	}

	d.move(false)
	d.waitGone()
	if who, _ := d.ended(); who != operatorName+" delete" {
		t.Errorf("the pod was ended by %q", who)
	}
}

// writeOfAnother writes the records of an interrupted drain for a database with that name: a request for an earlier
// pod, and the mark of Couchbase's hook.
func (s *scene) writeOfAnother(name string) {
	s.Helper()
	const uid = "00000000-0000-4000-8000-000000000000"
	r := &evictionv1.RescheduleRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: uid}}
	r.Spec = evictionv1.RescheduleRequestSpec{
		Pod: evictionv1.PodReference{Name: name + "-0", UID: uid}, NodeName: "another", Intent: evictionv1.IntentEviction,
		Policy:  evictionv1.PolicyReference{Kind: evictionv1.NamespacedPolicy, Name: name},
		Request: evictionv1.Request{Annotation: &evictionv1.Annotation{Key: moveKey, Value: "true"}},
	}
	s.must(s.Workload.Create(s.step(), r))
	ns := &corev1.Namespace{}
	s.must(s.Workload.Get(s.step(), client.ObjectKey{Name: s.Namespace}, ns))
	before := ns.DeepCopy()
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, evictionv1.TrackingPrefix+s.Namespace+"."+name+"-0", "true")
	s.must(s.Workload.Patch(s.step(), ns, client.MergeFrom(before)))
}

// waitRefused waits until that many evictions of the pod were refused, and returns the Machine's message. Until then
// the pod must not change, and the message must contain that, unless it is empty.
func (d *database) waitRefused(that string, times int) (says string) {
	d.Helper()
	pod := d.pod.DeepCopy()
	d.must(await.Object(d.step(), d.Management, d.machine, func() error {
		says = conditions.GetMessage(d.machine, clusterv1.MachineDeletingCondition)
		if that != "" && says != that {
			d.Fatalf("the Machine says:\n%s\nit said:\n%s", says, that)
		}
		if err := d.Workload.Get(d.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.UID != d.pod.UID || !pod.DeletionTimestamp.IsZero() {
			d.Fatalf("the pod must stay until its operator moves it: %v, %+v", err, pod.ObjectMeta)
		}
		tries := d.tries(d.pod)
		for _, e := range tries {
			if verb(&e) != evicts || e.User.Username != "cluster-api" || e.ResponseStatus.Code != http.StatusTooManyRequests {
				d.Fatalf("%s of the pod by %s: %d %s", verb(&e), e.User.Username, e.ResponseStatus.Code, e.ResponseStatus.Message)
			}
		}
		if len(tries) < times {
			return fmt.Errorf("%d evictions were refused", len(tries))
		}
		if !strings.Contains(says, d.Namespace+"/"+d.pod.Name) || !strings.Contains(says, d.cause()) {
			return errors.New("it says " + says)
		}
		return nil
	}))
	return says
}

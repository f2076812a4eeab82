// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/guard"
)

// TestAStandbyTakesOver has a request that ends while another replica holds the lease. The standby drops the request
// from its queue, and reconciles it once it gets the lease.
func TestAStandbyTakesOver(t *testing.T) {
	w := newWorld(t)
	w.install()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: guard.LeaseName}}
	w.Must(client.IgnoreNotFound(w.Client.Delete(t.Context(), lease)))
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)),
		AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
	}
	w.Create(lease)
	reader, err := client.New(api.Config, client.Options{Scheme: guard.Scheme()})
	w.Must(err)
	request := &evictionv1.RescheduleRequest{ObjectMeta: metav1.ObjectMeta{Namespace: api.Namespace(t), Name: "gone"}, Spec: evictionv1.RescheduleRequestSpec{
		Pod: evictionv1.PodReference{Name: "db-0", UID: "gone"}, NodeName: "box", Intent: evictionv1.IntentWithdrawn, WithdrawnTime: metav1.NewTime(w.clock.Now()),
		Policy:  evictionv1.PolicyReference{Kind: evictionv1.NamespacedPolicy, Name: "db"},
		Request: evictionv1.Request{Annotation: &evictionv1.Annotation{Key: "example.com/move", Value: "true"}},
	}}
	w.Must(reader.Create(t.Context(), request))
	reconciled := func() float64 {
		return gathered(t, ctrlmetrics.Registry, "controller_runtime_reconcile_total", "reschedulerequest")
	}
	before := reconciled()
	w.start(guard.Options{Certificates: guard.CertificatesSelf})
	eventually(t, "the standby drops the request", func() bool { return reconciled() > before })
	if err := reader.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
		t.Fatalf("a standby must tend nothing: %v", err)
	}
	w.Must(w.Client.Delete(t.Context(), lease))
	eventually(t, "the next leader tends it", func() bool {
		return apierrors.IsNotFound(reader.Get(t.Context(), client.ObjectKeyFromObject(request), request))
	})
}

// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// Options are what may differ between two guards.
type Options struct {
	// Version is that of the guard, for its metrics.
	Version string
	// Registry has its metrics; nil has none.
	Registry prometheus.Registerer
	// Clock tells the time; nil is the machine's.
	Clock clock.PassiveClock
	// DrainTaints are the keys of taints of a Node that is drained, beside a cordon and
	// eviction.DrainTaints.
	DrainTaints []string
	// Keep is for how long a pod that was moved is not taken for one that is to be; zero is
	// eviction.Keep.
	Keep time.Duration
	// Webhook is the server that the API server asks, and CertDir where its certificate is.
	Webhook webhook.Server
	CertDir string
	// Certificates says who makes the certificate.
	Certificates Certificates
	// Lease is held by the replica that tends requests; nil is for the only one.
	Lease resourcelock.Interface
}

// SetupWithManager has mgr answer the API server on every replica, and tend requests on the one that
// holds the lease. mgr itself elects no leader: it would end the process, and with it the answers, when the lease
// is lost.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Keep == 0 {
		o.Keep = eviction.Keep
	}
	evictor := &eviction.Evictor{
		Live: mgr.GetAPIReader(), Policies: mgr.GetClient(), Cache: mgr.GetClient(), Write: actuate.New(mgr.GetClient()),
		Clock: o.Clock, Taints: slices.Concat(eviction.DrainTaints, o.DrainTaints), Keep: o.Keep,
	}
	reports := &reporter{recorder: mgr.GetEventRecorder(Name)}
	lead := newLeader(o.Lease)
	s := &server{
		webhook: o.Webhook, handler: &webhook.Admission{Handler: &admitter{
			cached: evictor.EvictCached, queue: queue{decide: evictor.EvictLive, places: make(chan struct{}, decisions)}, clock: o.Clock, reporter: reports,
		}},
		cache: mgr.GetCache(), live: mgr.GetAPIReader(), clock: o.Clock, certDir: o.CertDir,
	}
	if o.Certificates == CertificatesSelf {
		s.certificates = &certificates{
			live: mgr.GetAPIReader(), write: actuate.New(mgr.GetClient()), clock: o.Clock,
			secret: client.ObjectKey{Namespace: reclaimapi.Namespace, Name: SecretName},
			hosts:  []string{Name + "." + reclaimapi.Namespace + ".svc"},
		}
	}
	if o.Registry != nil {
		if err := register(o.Registry, o.Version, collector{reader: mgr.GetClient(), leads: lead.leads, reporter: reports}); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return errors.Join(
		mgr.GetFieldIndexer().IndexField(ctx, &evictionv1.RescheduleRequest{}, eviction.AskedIndex, eviction.IndexAsked),
		mgr.Add(s), mgr.Add(lead),
		mgr.AddReadyzCheck("answers", s.ready),
		mgr.AddHealthzCheck("lives", healthz.Ping),
		(&Reconciler{RequestReconciler: &eviction.RequestReconciler{Evictor: evictor}, Reader: mgr.GetClient(), reporter: reports, leader: lead}).SetupWithManager(mgr),
	)
}

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

// Options configure a guard.
type Options struct {
	// Version is the version in its metrics.
	Version string
	// Registry registers its metrics.
	Registry prometheus.Registerer
	// Clock returns the time.
	Clock clock.PassiveClock
	// DrainTaints are the keys of taints that mark a Node as draining, besides a cordon and eviction.DrainTaints.
	DrainTaints []string
	// NameProtection is Evictor.NameProtection.
	NameProtection time.Duration
	// Webhook is the webhook server. CertDir is the directory of its certificate.
	Webhook webhook.Server
	CertDir string
	// Certificates is the source of the certificate.
	Certificates Certificates
	// Lease elects the replica that reconciles requests. It is nil if there is one replica.
	Lease resourcelock.Interface
}

// SetupWithManager adds the webhook server, which runs on each replica, and the reconciler of requests, which runs on
// the holder of the lease. mgr itself must not elect a leader: it would end the process, and its answers, when it loses
// the lease.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, o Options) error {
	evictor := &eviction.Evictor{
		Live: mgr.GetAPIReader(), Policies: mgr.GetClient(), Cache: mgr.GetClient(), Write: actuate.New(mgr.GetClient()),
		Clock: o.Clock, Taints: slices.Concat(eviction.DrainTaints, o.DrainTaints), NameProtection: o.NameProtection,
	}
	reports := &reporter{recorder: mgr.GetEventRecorder(Name)}
	lead := newLeader(o.Lease)
	s := &server{
		webhook: o.Webhook, handler: &webhook.Admission{Handler: &admitter{
			cached: evictor.EvictCached, queue: decisionQueue{decide: evictor.EvictLive, slots: make(chan struct{}, decisions)}, clock: o.Clock, reporter: reports,
		}},
		cache: mgr.GetCache(), live: mgr.GetAPIReader(), clock: o.Clock, certDir: o.CertDir,
	}
	if o.Certificates == CertificatesSelf {
		s.certificates = &certificates{
			live: mgr.GetAPIReader(), write: actuate.New(mgr.GetClient()), clock: o.Clock,
			secret: client.ObjectKey{Namespace: reclaimapi.Namespace, Name: SecretName},
			host:   Name + "." + reclaimapi.Namespace + ".svc",
		}
	}
	if err := register(o.Registry, o.Version, collector{reader: mgr.GetClient(), leads: lead.leads, reporter: reports}); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return errors.Join(
		mgr.GetFieldIndexer().IndexField(ctx, &evictionv1.RescheduleRequest{}, eviction.RequestedTimeIndex, eviction.IndexRequestedTime),
		mgr.Add(s), mgr.Add(lead),
		mgr.AddReadyzCheck("answers", s.ready),
		mgr.AddHealthzCheck("lives", healthz.Ping),
		(&Reconciler{Evictor: evictor, reporter: reports, leader: lead}).SetupWithManager(mgr),
	)
}

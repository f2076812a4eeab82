// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
)

const (
	// startupInterval is the interval of the checks of the certificate until it is valid and published, steadyInterval
	// the interval after that.
	startupInterval = time.Second
	steadyInterval  = 10 * time.Second
	// probeTimeout bounds the request to the API server in a probe.
	probeTimeout = 3 * time.Second
	// maxSilence is how long a replica stays Ready while the API server answers no probe. A slow API server answers one
	// of 24 probes in time, or refuses one; an unreachable API server does neither.
	maxSilence = 2 * time.Minute
)

// A server starts the webhook server once the caches are synced and the certificate is valid. It runs on each replica.
type server struct {
	webhook webhook.Server
	handler http.Handler
	cache   cache.Cache
	live    client.Reader
	clock   clock.PassiveClock
	certDir string
	// certificates is nil if another program creates the certificate.
	certificates *certificates

	// published is true once the webhook configuration has the certificate.
	published atomic.Bool
	// answered is when the API server last answered a probe, in nanoseconds since 1970.
	answered atomic.Int64
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*server) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. An error, such as a port in use, ends the process.
func (s *server) Start(ctx context.Context) error {
	if s.certificates != nil {
		go s.reconcileCertificates(ctx)
	}
	// The informers start before the first request.
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for _, kind := range []client.Object{&evictionv1.ReschedulePolicy{}, &evictionv1.ClusterReschedulePolicy{}, &evictionv1.RescheduleRequest{}, &corev1.Node{}, &corev1.Pod{}, namespaces} {
		if _, err := s.cache.GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("reading %T: %w", kind, err)
		}
	}
	logged := false
	err := wait.PollUntilContextCancel(ctx, startupInterval, true, func(context.Context) (bool, error) {
		err := served(s.certDir, s.clock.Now())
		if err != nil && !logged {
			ctrl.Log.Info("Waiting for a certificate", "because", err.Error())
			logged = true
		}
		return err == nil, nil
	})
	if err != nil {
		return nil //nolint:nilerr // The manager stops.
	}
	if s.certificates == nil {
		s.webhook.Register(Path, s.handler)
	} else {
		s.webhook.Register(Path+"/", s.certificates.requireSecretPath(s.handler))
	}
	return s.webhook.Start(ctx)
}

// reconcileCertificates reconciles the certificate until ctx ends.
func (s *server) reconcileCertificates(ctx context.Context) {
	for ctx.Err() == nil {
		next, err := steadyInterval, s.certificates.reconcile(ctx)
		if err == nil {
			s.published.Store(true)
		} else {
			next = startupInterval
			if !apierrors.IsConflict(err) && ctx.Err() == nil {
				ctrl.Log.Error(err, "Keeping the certificate")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(next): //nolint:forbidigo // Nothing is decided by when it is looked.
		}
	}
}

// ready is the readiness probe: a replica that is Ready can answer evictions.
func (s *server) ready(req *http.Request) error {
	if s.certificates != nil && !s.published.Load() {
		return errors.New("the caBundle of the webhook is not set yet")
	}
	if err := served(s.certDir, s.clock.Now()); err != nil {
		return err
	}
	if err := s.webhook.StartedChecker()(req); err != nil {
		return err
	}
	return s.reachesAPIServer(req.Context())
}

// reachesAPIServer returns no error for a busy API server: a replica that answers 429 still protects pods, but without
// a Ready replica the API server evicts them.
func (s *server) reachesAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err, now := s.live.List(ctx, &evictionv1.ReschedulePolicyList{}, client.Limit(1)), s.clock.Now()
	switch {
	case err == nil || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err):
		s.answered.Store(now.UnixNano())
		return nil
	case errors.Is(err, context.DeadlineExceeded) && now.Before(time.Unix(0, s.answered.Load()).Add(maxSilence)):
		return nil
	default:
		return fmt.Errorf("listing policies: %w", err)
	}
}

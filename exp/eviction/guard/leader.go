// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/event"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
)

// Durations of the lease, as in controller-runtime.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// A leader acquires and renews the lease for as long as the process runs. A replica that loses the lease stops
// reconciling requests, and continues to answer evictions.
type leader struct {
	lease resourcelock.Interface
	// termStarted receives an event when a term begins. Its buffer has room for one.
	termStarted chan event.GenericEvent

	mu sync.Mutex
	// term ends when this replica loses the lease. It is nil if the replica never led.
	term context.Context //nolint:containedctx // The elector hands out a term as a context.
}

func newLeader(lease resourcelock.Interface) *leader {
	return &leader{lease: lease, termStarted: make(chan event.GenericEvent, 1)}
}

// Start implements manager.Runnable.
func (l *leader) Start(ctx context.Context) error {
	if l.lease == nil {
		l.lead(ctx)
		return nil
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: l.lease, Name: LeaseName, ReleaseOnCancel: true,
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: l.lead, OnStoppedLeading: func() {}},
		})
		if err != nil {
			return fmt.Errorf("electing a leader: %w", err)
		}
		elector.Run(ctx)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*leader) NeedLeaderElection() bool { return false }

// lead starts a term, which ends with ctx. The elector calls it in a goroutine, so a late call may come after the end
// of its term. Such a call must not replace the next term.
func (l *leader) lead(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	l.term = ctx
	select {
	case l.termStarted <- event.GenericEvent{Object: &evictionv1.ClusterReschedulePolicy{}}:
	default: // An event of an earlier term is still pending.
	}
}

// current returns the term, nil while this replica does not hold the lease.
func (l *leader) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil || l.term.Err() != nil {
		return nil
	}
	return l.term
}

// leads reports whether this replica holds the lease.
func (l *leader) leads() bool { return l.current() != nil }

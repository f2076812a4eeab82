// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Times of the lease, as controller-runtime has them.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// A leader holds the lease, or tries to get it, for as long as the process runs. A replica that loses the lease
// tends no more requests, and goes on answering evictions.
type leader struct {
	lease resourcelock.Interface

	// term is when this replica last held the lease. It is nil before.
	term atomic.Pointer[term]
}

// A term ends when the lease is lost.
type term struct{ over <-chan struct{} }

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

// lead begins a term, which ends with ctx.
func (l *leader) lead(ctx context.Context) { l.term.Store(&term{over: ctx.Done()}) }

// leads reports whether this replica holds the lease.
func (l *leader) leads() bool {
	t := l.term.Load()
	if t == nil {
		return false
	}
	select {
	case <-t.over:
		return false
	default:
		return true
	}
}

// during returns a context that ends with the term, and whether this replica holds the lease.
func (l *leader) during(ctx context.Context) (_ context.Context, done context.CancelFunc, leads bool) {
	if !l.leads() {
		return ctx, nil, false
	}
	over := l.term.Load().over
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel, true
}

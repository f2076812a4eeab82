// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fakeLease is a lease at an API server that may be away.
type fakeLease struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
	away   bool
}

var errAway = errors.New("the API server is away")

func (f *fakeLease) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *fakeLease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.away:
		return nil, nil, errAway
	case f.record == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, LeaseName)
	}
	raw, err := json.Marshal(f.record)
	record := *f.record
	return &record, raw, err
}

func (f *fakeLease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return f.Update(ctx, r)
}

func (f *fakeLease) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errAway
	}
	f.record = &r
	return nil
}

func (*fakeLease) RecordEvent(string) {}
func (*fakeLease) Identity() string   { return "a" }
func (*fakeLease) Describe() string   { return LeaseName }

// TestAReplicaThatLosesTheLease stops tending, and takes the lease again once it can. It does not end: it answers
// evictions meanwhile.
func TestAReplicaThatLosesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		l := &leader{lease: lease}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Start(ctx) }()
		time.Sleep(time.Second)
		tending, done, leads := l.during(ctx)
		if !leads || !l.leads() {
			t.Fatal("it does not lead")
		}
		defer done()

		lease.setAway(true)
		time.Sleep(leaseDuration)
		if tending.Err() == nil || l.leads() {
			t.Error("it tends although it cannot renew its lease")
		}
		if _, _, leads := l.during(ctx); leads {
			t.Error("it begins to tend")
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}

		lease.setAway(false)
		time.Sleep(2 * leaseDuration)
		if !l.leads() {
			t.Error("it does not lead again")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if l.leads() || lease.record.HolderIdentity != "" {
			t.Errorf("it ends, and holds the lease: %+v", lease.record)
		}
	})
}

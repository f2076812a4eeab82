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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
)

// fakeLease is a lease on an API server that may be unreachable.
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

// hangs is an API server that answers no read before ctx ends.
type hangs struct{ client.Reader }

func (hangs) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestAReplicaThatLosesTheLease checks that the replica stops reconciling, and acquires the lease again. It does not
// end, because it also answers evictions.
func TestAReplicaThatLosesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		l := newLeader(lease)
		r := &Reconciler{Evictor: &eviction.Evictor{Live: hangs{}}, leader: l}
		request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "db", Name: "uid"}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Start(ctx) }()
		time.Sleep(time.Second)
		if !l.leads() || len(l.termStarted) != 1 {
			t.Fatal("it does not lead")
		}
		tended := make(chan error, 1)
		go func() {
			_, err := r.Reconcile(ctx, request)
			tended <- err
		}()

		lease.setAway(true)
		time.Sleep(leaseDuration)
		select {
		case err := <-tended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("it has tended a request: %v", err)
			}
		default:
			t.Error("it tends although it cannot renew its lease")
		}
		if l.leads() {
			t.Error("it leads although it cannot renew its lease")
		}
		if result, err := r.Reconcile(ctx, request); err != nil || !result.IsZero() {
			t.Errorf("a standby keeps a request in its queue: %+v, %v", result, err)
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}

		<-l.termStarted
		lease.setAway(false)
		time.Sleep(2 * leaseDuration)
		if !l.leads() || len(l.termStarted) != 1 {
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

// TestALateCallOfAnEarlierTerm has a call that arrives after the next term has begun, as from a delayed goroutine of
// the elector.
func TestALateCallOfAnEarlierTerm(t *testing.T) {
	l := newLeader(nil)
	earlier, end := context.WithCancel(t.Context())
	end()
	l.lead(t.Context())
	l.lead(earlier)
	if !l.leads() {
		t.Error("the term that is over replaces the current one")
	}
}

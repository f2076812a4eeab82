// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answers is an API server that answers each list with err, or without an error if that is nil.
type answers struct {
	client.Reader
	err error
}

func (a *answers) List(context.Context, client.ObjectList, ...client.ListOption) error { return a.err }

// TestASlowAPIServerIsNotAnUnreachableOne has an API server that answers no probe in time: a replica stays Ready for
// two minutes after the last answer.
func TestASlowAPIServerIsNotAnUnreachableOne(t *testing.T) {
	live, clock := &answers{}, clocktesting.NewFakePassiveClock(time.Now())
	s := &server{live: live, clock: clock}
	probe := func(err error, ready bool) {
		t.Helper()
		live.err = err
		if got := s.reachesAPIServer(t.Context()); (got == nil) != ready {
			t.Errorf("after %v: %v", err, got)
		}
	}
	silent := context.DeadlineExceeded
	probe(silent, false)
	for range 2 {
		probe(nil, true)
		for range 23 {
			clock.SetTime(clock.Now().Add(5 * time.Second))
			probe(silent, true)
		}
		clock.SetTime(clock.Now().Add(5 * time.Second))
		probe(silent, false)
	}
	for _, busy := range []error{apierrors.NewTooManyRequestsError("later"), apierrors.NewTimeoutError("slow", 1)} {
		probe(busy, true)
		clock.SetTime(clock.Now().Add(time.Minute))
		probe(silent, true)
		clock.SetTime(clock.Now().Add(time.Minute))
		probe(silent, false)
	}
	probe(errors.New("connection refused"), false)
}

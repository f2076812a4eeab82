// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

// waitPhase waits for a phase and, unless it is empty, a status of Ready, both for the newest spec.
func (l *lab) waitPhase(sm *v1alpha1.ScheduledMachine, phase v1alpha1.Phase, ready metav1.ConditionStatus) {
	l.t.Helper()
	l.specs().WaitPhase(sm, phase, ready)
}

// waitCondition waits for a condition whose message contains all of parts.
func (l *lab) waitCondition(sm *v1alpha1.ScheduledMachine, kind string, status metav1.ConditionStatus, reason string, parts ...string) {
	l.t.Helper()
	l.specs().WaitCondition(sm, metav1.Condition{Type: kind, Status: status, Reason: reason}, parts...)
}

func (l *lab) waitFor(obj client.Object, cond func() error) {
	l.t.Helper()
	l.specs().WaitFor(obj, cond)
}

func (l *lab) waitGone(objs ...client.Object) {
	l.t.Helper()
	ctx := timeout(l.t, longPatience)
	for _, obj := range objs {
		l.must(shared.Management.WaitGone(ctx, obj))
	}
}

func (l *lab) until(cond func(context.Context) error) {
	l.t.Helper()
	l.must(plane.Until(timeout(l.t, patience), cond))
}

// holds checks that a state does not change for a while. There is no event to wait for if no change is expected.
func holds(t *testing.T, d time.Duration, cond func(context.Context) error) {
	t.Helper()
	ctx := timeout(t, d)
	err := plane.Until(ctx, func(ctx context.Context) error {
		if err := cond(ctx); err != nil && ctx.Err() == nil {
			t.Fatalf("it did not stay as it was for %v: %v", d, err)
		}
		return errStillHolds
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

var errStillHolds = errors.New("it still holds")

// condition returns a condition of a ScheduledMachine, empty if it has none.
func condition(sm *v1alpha1.ScheduledMachine, kind string) metav1.Condition {
	return specs.Condition(sm, kind)
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestABurstOfKillSwitchesIsConfirmed has the kill switches of 40 machines be turned on at once,
// and one off again, while the manager runs as it ships, so it is not parallel. What started is
// what the API server recorded.
func TestABurstOfKillSwitchesIsConfirmed(t *testing.T) {
	const machines, atOnce = 40, 10
	l := newLab(t, "burst")
	var all []*v1alpha1.ScheduledMachine
	for i := range machines {
		all = append(all, l.started(fmt.Sprintf("box-%02d", i), nil))
	}
	for _, sm := range all {
		l.waitPhase(sm, active, metav1.ConditionTrue)
	}
	l.asShips(all[0])

	mark := l.mark()
	var begun, ended time.Time
	var stays *v1alpha1.ScheduledMachine
	l.withoutWebhooks(func() {
		begun = time.Now()
		l.killAll(all)
		ended = time.Now()
		l.waitStarts(mark, atOnce)
		stays = l.waitsInBurst(all)
		l.killSwitch(stays, false)
	})
	l.wantBurstEvent()
	l.waitStarts(mark, machines-1)

	starts := l.starts(mark)
	if at, left := starts[stays.Name+"-machine"]; left {
		t.Errorf("%s left after %s, whose kill switch was turned off while it waited", stays.Name, at.Sub(begun))
	}
	var order []time.Duration
	for _, at := range starts {
		order = append(order, at.Sub(begun))
	}
	slices.Sort(order)
	t.Logf("switches were on after %s; machines started to leave after %v", ended.Sub(begun), order)
	if order[atOnce-1] > burstSoon+ended.Sub(begun) {
		t.Errorf("the %dth starts to leave after %s, want at once", atOnce, order[atOnce-1])
	}
	if order[atOnce] < burstWaits {
		t.Errorf("the %dth starts to leave after %s: nobody has confirmed it", atOnce+1, order[atOnce])
	}
	if last := order[len(order)-1]; last > burstEnds+ended.Sub(begun) {
		t.Errorf("the last starts to leave after %s: nobody waits so long", last)
	}
	l.waitPhase(stays, active, metav1.ConditionTrue)
}

const (
	// burstSoon is how long a machine of two cores may take to delete ten Machines, once all
	// switches are on.
	burstSoon = 10 * time.Second
	// burstWaits is less than three looks take, and burstEnds more than anybody waits.
	burstWaits = 15 * time.Second
	burstEnds  = 40 * time.Second
)

// killAll turns all kill switches on, as a template would: not one after the other.
func (l *lab) killAll(all []*v1alpha1.ScheduledMachine) {
	l.t.Helper()
	ctx := timeout(l.t, patience)
	on := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"killSwitch":true}}`))
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for i, sm := range all {
		done.Go(func() { errs[i] = shared.Management.Client.Patch(ctx, sm, on) })
	}
	done.Wait()
	l.must(errors.Join(errs...))
}

// waitsInBurst returns one that says that it waits.
func (l *lab) waitsInBurst(all []*v1alpha1.ScheduledMachine) (waits *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.until(func(ctx context.Context) error {
		for _, sm := range all {
			if err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(sm), sm); err != nil {
				return err
			}
			if conditions.GetReason(sm, v1alpha1.DepartureGatedCondition) == v1alpha1.KillSwitchBurstReason {
				waits = sm
				return nil
			}
		}
		return errors.New("nobody says that it waits")
	})
	return waits
}

// wantBurstEvent waits until the Cluster has been told.
func (l *lab) wantBurstEvent() {
	l.t.Helper()
	l.until(func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := shared.Management.Client.List(ctx, events, client.InNamespace(l.Key.Namespace), client.MatchingFields{"regarding.name": l.Key.Name}); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == v1alpha1.KillSwitchBurstEngagedEvent }) {
			return errors.New("nobody has told the Cluster")
		}
		return nil
	})
}

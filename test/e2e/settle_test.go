// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// planeMachine is the default infrastructure of a test.
var planeMachine = infrav1.PlaneMachineSpec{}

func TestSettledFleetWritesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, "fleet")
	fleet := l.fleet(50)
	l.waitSettled(fleet)
	mark := l.mark()
	pause(t, time.Minute)
	if writes := l.writes(mark); len(writes) > 0 {
		t.Errorf("a settled fleet must cause no write at all:\n%s", describeAll(writes))
	}
}

// fleet creates n ScheduledMachines, equally many in each stable phase, and waits until they are in it.
func (l *lab) fleet(n int) []*v1alpha1.ScheduledMachine {
	l.t.Helper()
	kinds := []struct {
		name   string
		mutate func(*v1alpha1.ScheduledMachine)
		phase  v1alpha1.Phase
		ready  metav1.ConditionStatus
	}{
		{"runs", nil, active, metav1.ConditionTrue},
		{"idles", outside, inactive, metav1.ConditionTrue},
		{"off", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) }, disabled, metav1.ConditionTrue},
		{"killed", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }, terminated, metav1.ConditionTrue},
		{"alone", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.ClusterName = "nowhere" }, pending, metav1.ConditionFalse},
		{"never", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.DaysOfWeek = nil }, inactive, metav1.ConditionTrue},
	}
	var fleet []*v1alpha1.ScheduledMachine
	for i := range n {
		kind := kinds[i%len(kinds)]
		fleet = append(fleet, l.started(fmt.Sprintf("%s%d", kind.name, i), kind.mutate))
	}
	for i, sm := range fleet {
		l.waitPhase(sm, kinds[i%len(kinds)].phase, kinds[i%len(kinds)].ready)
	}
	return fleet
}

// waitSettled waits until there were no writes for a few seconds: Cluster API continues to report for a moment after a
// Machine is ready.
func (l *lab) waitSettled(fleet []*v1alpha1.ScheduledMachine) {
	l.t.Helper()
	const calm = 3 * time.Second
	last, since := l.mark(), time.Now()
	l.until(func(context.Context) error {
		if now := l.mark(); len(l.writes(last)) > 0 {
			last, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < calm {
			return fmt.Errorf("%d ScheduledMachines: there was a write %v ago", len(fleet), quiet)
		}
		return nil
	})
}

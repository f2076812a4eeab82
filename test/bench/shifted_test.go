// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// TestTheShiftedManagerStarts runs one machine on the manager that the section edge
// measures, in a window that is open by the shifted clock alone.
func TestTheShiftedManagerStarts(t *testing.T) {
	ctrl.SetLogger(klog.Background())
	b := &bench{out: t.Output()}
	t.Cleanup(b.close)
	program, err := b.build(t.Context(), "./bench/shifted", "manager")
	if err != nil {
		t.Fatal(err)
	}
	opens := clk.Now().UTC().Truncate(time.Hour).Add(-back)
	offset := clockOffset(opens.Add(30*time.Minute), clk.Now())
	err = b.with(t.Context(), filepath.Dir(program), []string{offset}, func(ctx context.Context, l *lab) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		f, err := l.follow(ctx)
		if err != nil {
			return err
		}
		names, err := l.create(ctx, "edge", 1, infrav1.PlaneMachineSpec{}, func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.Schedule.HoursOfDay = []string{fmt.Sprint(opens.Hour())}
		})
		if err != nil {
			return err
		}
		return f.settle(ctx, names, v1alpha1.PhaseActive)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

func TestStateOf(t *testing.T) {
	const lasts = children.AdmissionLasts
	for name, tc := range map[string]struct {
		since, now time.Time
		other      bool
		deleted    bool
		want       children.DepartureState
	}{
		"Requested":       {time.Time{}, made, false, false, children.Requested},
		"RequestedByHook": {time.Time{}, made, false, true, children.Requested},
		"ClockSetBack":    {made.Add(rails.MaxSkew), made, false, true, children.Started},
		"ByHand":          {made.Add(rails.MaxSkew + time.Second), made, false, true, children.Requested},
		"InTheFuture":     {made.Add(slack + time.Second), made, false, false, children.Requested},
		"ClocksDiffer":    {made.Add(slack), made, false, false, children.Admitted},
		"Admitted":        {made, made.Add(lasts - 1), false, false, children.Admitted},
		"Expired":         {made, made.Add(lasts), false, false, children.Expired},
		"Started":         {made, made.Add(lasts), false, true, children.Started},
		"OtherMachine":    {made, made, true, false, children.OtherMachine},
	} {
		t.Run(name, func(t *testing.T) {
			m := live(t, machineOf(nil))
			d := v1alpha1.NewDeparture(v1alpha1.WindowClosed, made, "a")
			d.RequestedAt, d.Since = metav1.NewTime(made), metav1.NewTime(tc.since)
			if children.SetDeparture(m, d); tc.other {
				m.UID = "other"
			}
			if tc.deleted {
				m.DeletionTimestamp = new(metav1.NewTime(made))
			}
			state, got := children.StateOf(m, tc.now)
			if state != tc.want || got.ActionID != "a" || state == children.Requested && !got.Since.IsZero() {
				t.Errorf("StateOf = %s, %s; want %s", state, got, tc.want)
			}
		})
	}
	m := live(t, machineOf(nil))
	for _, record := range []string{"", "{}", "not JSON"} {
		m.Annotations[v1alpha1.DepartureAnnotation] = record
		if state, _ := children.StateOf(m, made); state != children.NoDeparture {
			t.Errorf("StateOf = %s for %q", state, record)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

func TestADepartureIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, time.March, 2, 17, 0, 0, 999, time.FixedZone("CET", 3600))
	for reason, lane := range map[v1alpha1.DepartureReason]v1alpha1.DepartureLane{
		v1alpha1.WindowClosed:            v1alpha1.ScheduledLane,
		v1alpha1.ScheduledMachineDeleted: v1alpha1.UnscheduledLane,
		v1alpha1.MachineReplaced:         v1alpha1.UnscheduledLane,
		v1alpha1.DeletedByOthers:         v1alpha1.UnscheduledLane,
		v1alpha1.ClusterDeleted:          v1alpha1.ExemptLane,
		v1alpha1.KilledByPerson:          v1alpha1.ExemptLane,
		v1alpha1.ReclaimedByOwner:        v1alpha1.ExemptLane,
	} {
		written := v1alpha1.NewDeparture(reason, at, "a1")
		read, ok := v1alpha1.ParseDeparture(written.String())
		if !ok || read.Lane != lane || read.Reason != reason || read.ActionID != "a1" || !read.Since.Equal(&written.Since) {
			t.Errorf("%s: read %+v, %t, from %s", reason, read, ok, written)
		}
	}
}

func FuzzParseDeparture(f *testing.F) {
	f.Add(v1alpha1.NewDeparture(v1alpha1.WindowClosed, time.Unix(1, 0), "a1").String())
	f.Add(`{"since":"0001-01-01T00:00:00Z","reason":"WindowClosed"}`)
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		d, ok := v1alpha1.ParseDeparture(text)
		if !ok {
			return
		}
		if again, ok := v1alpha1.ParseDeparture(d.String()); !ok || again.Reason != d.Reason || !again.Since.Equal(&d.Since) {
			t.Errorf("%q was read as %v, and that as %v, %t", text, d, again, ok)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestManyKillSwitchesAreAWarning turns on the kill switches of five machines one after the other. Each is served at
// once. The fourth within ten minutes causes a Warning on the Cluster.
func TestManyKillSwitchesAreAWarning(t *testing.T) {
	c := newCrowd(t, 6, five)
	recorder := events.NewFakeRecorder(100)
	c.r.Recorder = recorder
	surges := func() (n int) {
		for len(recorder.Events) > 0 {
			if strings.HasPrefix(<-recorder.Events, "Warning "+v1alpha1.KillSwitchSurgeEvent+" ") {
				n++
			}
		}
		return n
	}
	var all []int
	for i, want := range []int{0, 0, 0, 1, 0} { // The fifth follows within a minute of the Warning.
		w := c.all[i]
		w.edit(killed)
		w.reconcile()
		all = append(all, i)
		if got := c.leaving(); !slices.Equal(got, all) {
			t.Fatalf("%v leave after kill switch %d", got, i)
		}
		if got := surges(); got != want {
			t.Errorf("%d Warnings at kill switch %d, want %d", got, i, want)
		}
		w.settle()
		surges()
	}
	c.clock.SetTime(c.clock.Now().Add(11 * time.Minute))
	c.all[5].edit(killed)
	c.all[5].reconcile()
	if got := surges(); got != 0 {
		t.Error("the others were turned on more than ten minutes ago")
	}
}

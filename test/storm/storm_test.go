// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"testing"
	"time"
)

func TestTheFleetJoins(t *testing.T) {
	w := newWorld(t, 1000, "")
	w.edit(w.half(), unwanted)
	w.until(w.now.Add(time.Hour), func() bool { return len(w.left) == 500 })
	w.run(5*time.Minute)
	t.Log(w.now.Sub(w.began), w.signals)
	for _, b := range w.hold(outcome{leaves: w.half(), shows: "BlastRadiusCap"}) {
		t.Error(b)
	}
}

// SPDX-License-Identifier: Apache-2.0

package extensionconfig_test

import (
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAPauseRegistersNothing starts a manager that suppresses writes. The registration of another manager stays, also
// when this one stops.
func TestAPauseRegistersNothing(t *testing.T) {
	w := newWorld(t)
	pause := func() {
		w.start()
		gate := &actuate.Gate{Paused: true}
		w.r.Actuate = actuate.NewGated(gate, testenv.Gated(gate.Transport, w.Recorded(w.reads)))
		w.Writes = nil
	}
	pause()
	for range 2 {
		if w.look() {
			t.Error("it is tried again")
		}
	}
	if len(w.Writes) > 0 || w.registered() {
		t.Errorf("sent %v", w.Writes)
	}
	w.settle()
	pause()
	w.Must(w.r.WithdrawIfFinal(t.Context()))
	if len(w.Writes) > 0 || !w.registered() {
		t.Errorf("sent %v", w.Writes)
	}
}

// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAPauseMakesNoScheduledMachine covers a topology with a new machine while writes are suppressed.
func TestAPauseMakesNoScheduledMachine(t *testing.T) {
	w := newWorld(t, item("desk", "9-17"))
	gate := &actuate.Gate{Paused: true}
	w.r.Actuate = actuate.NewGated(gate, testenv.Gated(gate.Transport, w.Recorded(interceptor.Funcs{List: byIndex})))
	w.Writes = nil
	for range 3 {
		if res, err := w.try(); err != nil || res.RequeueAfter > 0 {
			t.Errorf("it is tried again: %v, %v", res, err)
		}
	}
	if len(w.Writes) > 0 {
		t.Errorf("sent %v", w.Writes)
	}
}

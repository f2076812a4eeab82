// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAPauseHoldsAMachineDeletedByOthers deletes a Machine with another client during a pause. No extension
// is called, and our hook holds the Machine until the pause ends.
func TestAPauseHoldsAMachineDeletedByOthers(t *testing.T) {
	for name, extensions := range map[string][]string{"Alone": nil, "WithExtension": {"one"}} {
		t.Run(name, func(t *testing.T) {
			w, out := newHookWorld(t, extensions...), &bytes.Buffer{}
			w.leave()
			w.restart()
			c := w.Recorded(interceptor.Funcs{})
			gate := &actuate.Gate{Paused: true, Log: audit.New(out)}
			w.r.Actuate = actuate.NewGated(gate, testenv.Gated(gate.Transport, c))
			w.Writes = nil
			for range 3 {
				if res, err := w.reconcile(); err != nil || res.RequeueAfter > 0 {
					t.Errorf("it is tried again: %v, %v", res, err)
				}
			}
			w.Read(w.machine)
			w.progress()
			calls := w.newCalls()
			if _, held := w.machine.Annotations[v1alpha1.PreDrainHookAnnotation]; !held || len(w.Writes) > 0 || len(calls) > 0 {
				t.Errorf("sent %v, called %v", w.Writes, calls)
			}
			if text := out.String(); strings.Count(text, "\n") != 3 || strings.Count(text, `"kind":"Depart"`) != 3 || strings.Count(text, `"reason":"External"`) != 3 {
				t.Errorf("told %s", text)
			}
			out.Reset()
			w.restart()
			w.r.Actuate = actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, c)
			w.settle()
			if _, held := w.machine.Annotations[v1alpha1.PreDrainHookAnnotation]; held {
				t.Errorf("it waits after the pause: %v", w.Writes)
			}
			d, _ := v1alpha1.ParseDeparture(w.machine.Annotations[v1alpha1.DepartureAnnotation])
			if !strings.Contains(out.String(), `"outcome":"success","action_id":"`+d.ActionID+`/pre-`) {
				t.Errorf("told %s", out)
			}
		})
	}
}

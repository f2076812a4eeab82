// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestAllWritesHaveOneFieldManager checks the field manager, by which people configure GitOps tools to ignore fields
// of the controllers. Cluster API's own controllers use the name manager.
func TestAllWritesHaveOneFieldManager(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.Must(w.Client.Delete(w.Context(), w.sm))
	w.settle()
	m, _ := w.machine()
	ours := 0
	for _, f := range append(w.sm.ManagedFields, m.ManagedFields...) {
		fields := string(f.FieldsV1.GetRawBytes())
		if !strings.Contains(fields, `"f:phase"`) && !strings.Contains(fields, v1alpha1.ScheduledMachineFinalizer) &&
			!strings.Contains(fields, v1alpha1.AppliedHashAnnotation) && !strings.Contains(fields, v1alpha1.MachineScheduledCondition) {
			continue
		}
		ours++
		if f.Manager != v1alpha1.FieldManager {
			t.Errorf("%s %s wrote %s", f.Manager, f.Operation, fields)
		}
	}
	if ours < 4 {
		t.Errorf("%d entries, want status, finalizer, Machine and its status", ours)
	}
}

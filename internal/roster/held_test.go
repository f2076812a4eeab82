// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// TestNeverRan covers Machines that another client deletes, with and without a Node in their status.
func TestNeverRan(t *testing.T) {
	for name, tc := range map[string]struct {
		machine, scheduled string // Node in the status
		held, orphan       bool
	}{
		"Never":             {"", "", true, true},
		"Ran":               {"node", "node", false, false},
		"MachineStatusLost": {"", "node", false, true},
		"StatusLost":        {"node", "", false, false},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(noon))}}
		m.Status.NodeRef.Name = tc.machine
		sm := &v1alpha1.ScheduledMachine{}
		if tc.scheduled != "" {
			sm.Status.NodeRef = &v1alpha1.NodeReference{Name: tc.scheduled}
		}
		if held, orphan := roster.HeldEntry(sm, m, noon).NeverRan, roster.OrphanEntry(m, false, noon).NeverRan; held != tc.held || orphan != tc.orphan {
			t.Errorf("%s: held %t, orphan %t, want %t and %t", name, held, orphan, tc.held, tc.orphan)
		}
	}
}

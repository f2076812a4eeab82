// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

func TestNeverRan(t *testing.T) {
	node := &v1alpha1.NodeReference{Name: "box"}
	status := func(uid types.UID, node *v1alpha1.NodeReference) *v1alpha1.ScheduledMachine {
		sm := &v1alpha1.ScheduledMachine{}
		sm.Status.MachineRef, sm.Status.NodeRef = &v1alpha1.ChildReference{UID: uid}, node
		return sm
	}
	cases := map[string]struct {
		reason   string
		node     string
		sm       *v1alpha1.ScheduledMachine
		neverRan bool
	}{
		"MachineHasNode":  {"The status of the Machine is enough.", "box", status("new", nil), false},
		"Orphan":          {"Nothing else knows the Machine.", "", nil, true},
		"StatusIsEmpty":   {"Neither status names a Node.", "", &v1alpha1.ScheduledMachine{}, true},
		"NoNode":          {"Neither status names a Node.", "", status("new", nil), true},
		"MachineLostNode": {"The status of the Machine was lost, for example by a restore.", "", status("new", node), false},
		"PreviousMachine": {"The ScheduledMachine does not show the new Machine yet.", "", status("old", node), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{}
			m.UID, m.Status.NodeRef.Name = "new", tc.node
			if got := children.NeverRan(m, tc.sm); got != tc.neverRan {
				t.Errorf("NeverRan() = %t, want %t: %s", got, tc.neverRan, tc.reason)
			}
		})
	}
}

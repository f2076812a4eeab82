// SPDX-License-Identifier: Apache-2.0

package machinehook_test

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/machinehook"
)

// TestEveryMachineOfAShardIsLetGo has each place for the label, in the order in which it
// counts.
func TestEveryMachineOfAShardIsLetGo(t *testing.T) {
	for name, tc := range map[string]struct {
		reason                      string
		scheduled, machine, cluster string
		orphan, held                bool
	}{
		"Ours":          {reason: "The ScheduledMachine says so.", scheduled: "mine"},
		"Others":        {reason: "Another shard's manager lets it go.", scheduled: "yours", machine: "mine", cluster: "mine", held: true},
		"NotLabelled":   {reason: "Nobody serves the ScheduledMachine, whatever its Cluster says.", cluster: "mine", held: true},
		"Orphan":        {reason: "Without a ScheduledMachine the Machine says whose it is.", orphan: true, machine: "mine"},
		"OrphanOfOther": {reason: "The Machine counts before its Cluster.", orphan: true, machine: "yours", cluster: "mine", held: true},
		"OldOrphan": {
			reason: "A Machine made before children had the label would otherwise wait for ever for a hook that nobody takes off.",
			orphan: true, cluster: "mine",
		},
		"OldOrphanOfOther": {reason: "It is for whoever serves its Cluster.", orphan: true, cluster: "yours", held: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.filter = "mine"
			for obj, filter := range map[client.Object]string{w.sm: tc.scheduled, w.machine: tc.machine, w.cluster: tc.cluster} {
				if filter != "" {
					w.Edit(obj, func() { label(obj, filter) })
				}
			}
			if tc.orphan {
				w.Must(w.Client.Delete(t.Context(), w.sm))
			}
			w.leave()
			w.settle()
			if held := w.held() != ""; held != tc.held {
				t.Errorf("%s\nthe Machine is held by %q", tc.reason, w.held())
			}
		})
	}
}

// TestALabelWakesAMachineThatIsLeaving is about a Machine that was deleted while its
// ScheduledMachine was nobody's.
func TestALabelWakesAMachineThatIsLeaving(t *testing.T) {
	with := func(filter string) client.Object {
		sm := &v1alpha1.ScheduledMachine{}
		label(sm, filter)
		return sm
	}
	for name, tc := range map[string]struct {
		filter, before, after string
		want                  bool
	}{
		"Labelled":      {"mine", "", "mine", true},
		"FromAnother":   {"mine", "yours", "mine", true},
		"Still":         {"mine", "mine", "mine", false},
		"ToAnother":     {"mine", "mine", "yours", false},
		"ServesAllOfIt": {"", "", "mine", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := machinehook.BecomesOurs(tc.filter).Update(event.UpdateEvent{ObjectOld: with(tc.before), ObjectNew: with(tc.after)})
			if got != tc.want {
				t.Errorf("wakes: %v, want %v", got, tc.want)
			}
		})
	}
}

func label(obj client.Object, filter string) {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[clusterv1.WatchLabel] = filter
	obj.SetLabels(labels)
}

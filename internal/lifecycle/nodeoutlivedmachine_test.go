// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// nodeOutlivedMachine is a departure whose budget is over and whose infrastructure is gone. Only the Machine and the
// Node are left.
func nodeOutlivedMachine(f *lifecycle.Facts) {
	leaving(f)
	f.Wanted, f.Deadline, f.Expedited = false, noon, true
	f.Infrastructure, f.Node = lifecycle.Absent, lifecycle.Present
}

func TestANodeThatOutlivesItsMachine(t *testing.T) {
	const gone = lifecycle.RemoveNode
	cases := map[string]struct {
		reason string
		change func(*lifecycle.Facts)
		phase  lifecycle.Phase
		want   lifecycle.Action
	}{
		"BudgetIsOver":     {"Pods on a Node without a machine are started elsewhere only when it is gone.", func(*lifecycle.Facts) {}, lifecycle.ShuttingDown, gone},
		"WindowHasOpened":  {"The departure ends first.", func(f *lifecycle.Facts) { f.Wanted = true }, lifecycle.ShuttingDown, gone},
		"Disabled":         {"What has begun ends.", func(f *lifecycle.Facts) { f.Enabled = false }, lifecycle.Disabled, gone},
		"ScheduleUnread":   {"What has begun ends.", func(f *lifecycle.Facts) { f.Readable = false }, lifecycle.Active, gone},
		"ObjectIsDeleted":  {"The cause of the departure does not matter.", func(f *lifecycle.Facts) { f.Deleting = true }, lifecycle.ShuttingDown, gone},
		"KillSwitch":       {"It may come in the middle of a drain.", func(f *lifecycle.Facts) { f.KillSwitch = true }, lifecycle.Terminated, gone},
		"OwnerAsked":       {"So may an owner, and then nothing wakes the lane.", func(f *lifecycle.Facts) { f.Reclaim = true }, lifecycle.EmergencyRemove, gone},
		"ClusterIsLeaving": {"It may take long to.", func(f *lifecycle.Facts) { f.Cluster = lifecycle.Leaving }, lifecycle.ShuttingDown, gone},

		"GraceIsNotOver":       {"Cluster API has its own order until then.", func(f *lifecycle.Facts) { f.Expedited, f.Deadline = false, noon.Add(time.Hour) }, lifecycle.ShuttingDown, lifecycle.Hold},
		"NotExpeditedYet":      {"Waiting ends first.", func(f *lifecycle.Facts) { f.Expedited = false }, lifecycle.ShuttingDown, lifecycle.Expedite},
		"InfrastructureLeaves": {"The host may still run it.", func(f *lifecycle.Facts) { f.Infrastructure = lifecycle.Leaving }, lifecycle.ShuttingDown, lifecycle.Hold},
		"InfrastructureUnread": {"Unknown is not gone.", func(f *lifecycle.Facts) { f.Infrastructure = lifecycle.Unknown }, lifecycle.ShuttingDown, lifecycle.Hold},
		"NodeUnseen":           {"Nothing is held up for it.", func(f *lifecycle.Facts) { f.Node = lifecycle.Unknown }, lifecycle.ShuttingDown, lifecycle.Hold},
		"NodeIsLeaving":        {"A finalizer of another controller holds it.", func(f *lifecycle.Facts) { f.Node = lifecycle.Leaving }, lifecycle.ShuttingDown, lifecycle.Hold},
		"NodeIsGone":           {"There is nothing left to do.", func(f *lifecycle.Facts) { f.Node = lifecycle.Absent }, lifecycle.ShuttingDown, lifecycle.Hold},
		"MachineLives":         {"A Machine that lives is drained, not cut off.", func(f *lifecycle.Facts) { f.Machine = lifecycle.Present }, lifecycle.ShuttingDown, lifecycle.Depart},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := lifecycle.Decide(running(func(f *lifecycle.Facts) { nodeOutlivedMachine(f); tc.change(f) }))
			if diff := cmp.Diff([]any{tc.phase, tc.want}, []any{got.Phase, got.Action}); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

var (
	noon    = time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)
	evening = noon.Add(6 * time.Hour)
)

// running returns a machine in its window in the desired state.
func running(change func(*lifecycle.Facts)) lifecycle.Facts {
	f := lifecycle.Facts{
		Now: noon, Phase: lifecycle.Active, Enabled: true, Readable: true, Wanted: true, Change: evening,
		Cluster: lifecycle.Present, Bootstrap: lifecycle.Present, Infrastructure: lifecycle.Present,
		Machine: lifecycle.Present, MachineReady: true, Exempt: true,
	}
	if change != nil {
		change(&f)
	}
	return f
}

// nothing removes all objects of a machine.
func nothing(f *lifecycle.Facts) {
	f.Bootstrap, f.Infrastructure, f.Machine = lifecycle.Absent, lifecycle.Absent, lifecycle.Absent
	f.MachineReady = false
}

// leaving is a machine during a graceful departure.
func leaving(f *lifecycle.Facts) {
	f.Machine, f.MachineReady, f.Deadline = lifecycle.Leaving, false, noon.Add(5*time.Minute)
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		reason string
		facts  lifecycle.Facts
		want   lifecycle.Decision
	}{
		"RunningIsLeftAlone": {
			reason: "In the window with everything there, the only thing to do is to look again at its end.",
			facts:  running(nil),
			want:   lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Ensure, Reason: lifecycle.MachineRunning, Recheck: evening},
		},
		"NewIsJudgedFirst": {
			reason: "A new object says Pending before anything is made for it.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase = "" }),
			want:   lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.NotEvaluated, Recheck: evening, Again: true},
		},
		"PendingInTheWindowIsMade": {
			reason: "The window is open.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase = lifecycle.Pending }),
			want:   lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Ensure, Reason: lifecycle.MachineCreating, Recheck: evening},
		},
		"TheSecondClaimOnAHostWaits": {
			reason: "Two machines on one host would take each other's place.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase, f.Claimed = lifecycle.Inactive, true }),
			want:   lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.HostClaimed, Recheck: evening},
		},
		"ARunningMachineStaysWhenItsHostIsClaimed": {
			reason: "A claim that becomes known later takes nothing away.",
			facts:  running(func(f *lifecycle.Facts) { f.Claimed = true }),
			want:   lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Hold, Reason: lifecycle.MachineRunning, Recheck: evening},
		},
		"InactiveJoinsWhenTheWindowOpens": {
			reason: "Inactive goes straight to Active.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase = lifecycle.Inactive }),
			want:   lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Ensure, Reason: lifecycle.MachineCreating, Recheck: evening},
		},
		"PendingOutsideIsInactive": {
			reason: "Nothing runs and nothing should.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase, f.Wanted = lifecycle.Pending, false }),
			want:   lifecycle.Decision{Phase: lifecycle.Inactive, Action: lifecycle.Hold, Reason: lifecycle.OutsideSchedule, Recheck: evening},
		},
		"InactiveStaysInactiveWhileItsChildrenCannotBeRead": {
			reason: "A machine that had left has not joined since: an unreadable provider starts no departure.",
			facts: running(func(f *lifecycle.Facts) {
				nothing(f)
				f.Phase, f.Wanted, f.Infrastructure = lifecycle.Inactive, false, lifecycle.Unknown
			}),
			want: lifecycle.Decision{Phase: lifecycle.Inactive, Action: lifecycle.Hold, Reason: lifecycle.OutsideSchedule, Recheck: evening},
		},
		"WindowEnds": {
			reason: "The Machine is given to Cluster API to delete.",
			facts:  running(func(f *lifecycle.Facts) { f.Wanted = false }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.WindowClosed, Recheck: evening},
		},
		"LeavingIsWaitedForUntilItsDeadline": {
			reason: "Cluster API drains; we look again when the budget is over, which is before the next edge.",
			facts:  running(func(f *lifecycle.Facts) { leaving(f); f.Wanted = false }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Hold, Reason: lifecycle.GracefulShutdown, Recheck: noon.Add(5 * time.Minute)},
		},
		"DeadlineIsInclusive": {
			reason: "At the deadline itself waiting ends.",
			facts:  running(func(f *lifecycle.Facts) { leaving(f); f.Wanted, f.Deadline = false, noon }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Expedite, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.WindowClosed, Recheck: evening},
		},
		"ExpeditedIsNotExpeditedAgain": {
			reason: "Acting twice is acting once: nothing is left to hasten.",
			facts:  running(func(f *lifecycle.Facts) { leaving(f); f.Wanted, f.Deadline, f.Expedited = false, noon, true }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Hold, Reason: lifecycle.GracefulShutdown, Recheck: evening},
		},
		"WindowReopensWhileLeaving": {
			reason: "A departure is finished before the machine joins again.",
			facts:  running(leaving),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Hold, Reason: lifecycle.GracefulShutdown, Recheck: noon.Add(5 * time.Minute)},
		},
		"LeftoversWithoutMachineAreDeleted": {
			reason: "Without a Machine nothing else deletes the objects that were made for it.",
			facts: running(func(f *lifecycle.Facts) {
				nothing(f)
				f.Wanted, f.Bootstrap = false, lifecycle.Present
			}),
			want: lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.WindowClosed, Recheck: evening},
		},
		"VanishedInfrastructureReplacesTheMachine": {
			reason: "Cluster API does not mend a Machine whose infrastructure went away.",
			facts:  running(func(f *lifecycle.Facts) { f.Infrastructure = lifecycle.Absent }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.MachineReplaced, Recheck: evening},
		},
		"VanishedBootstrapIsMadeAgain": {
			reason: "A bootstrap config has done its work; its going must not cost the Node.",
			facts:  running(func(f *lifecycle.Facts) { f.Bootstrap = lifecycle.Leaving }),
			want:   lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Ensure, Reason: lifecycle.MachineRunning, Recheck: evening},
		},
		"FailedMachineIsReplaced": {
			reason: "A health check asks the owner of the Machine to replace it.",
			facts:  running(func(f *lifecycle.Facts) { f.MachineFailed = true }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.MachineReplaced, Recheck: evening},
		},
		"KillSwitchBeatsSchedule": {
			reason: "An operator's stop wins even in the middle of a window.",
			facts:  running(func(f *lifecycle.Facts) { f.KillSwitch = true }),
			want:   lifecycle.Decision{Phase: lifecycle.Terminated, Action: lifecycle.Remove, Reason: lifecycle.KillSwitchActing, Cause: lifecycle.KillSwitch, Recheck: evening},
		},
		"KillSwitchBeatsDrain": {
			reason: "A graceful departure under way is cut short.",
			facts:  running(func(f *lifecycle.Facts) { leaving(f); f.KillSwitch = true }),
			want:   lifecycle.Decision{Phase: lifecycle.Terminated, Action: lifecycle.Remove, Reason: lifecycle.KillSwitchActing, Cause: lifecycle.KillSwitch, Recheck: evening},
		},
		"KillSwitchDone": {
			reason: "Nothing is left to remove, and nothing comes back.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.KillSwitch, f.Phase = true, lifecycle.Terminated }),
			want:   lifecycle.Decision{Phase: lifecycle.Terminated, Action: lifecycle.Hold, Reason: lifecycle.KillSwitchOn, Recheck: evening},
		},
		"KillSwitchOff": {
			reason: "The way back leads through Pending.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase = lifecycle.Terminated }),
			want:   lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.NotEvaluated, Recheck: evening, Again: true},
		},
		"ReclaimBeatsSchedule": {
			reason: "The emergency lane acts; here it is shown.",
			facts:  running(func(f *lifecycle.Facts) { f.Reclaim = true }),
			want:   lifecycle.Decision{Phase: lifecycle.EmergencyRemove, Action: lifecycle.Hold, Reason: lifecycle.EmergencyReclaim, Recheck: evening},
		},
		"DisabledLeavesTheMachine": {
			reason: "Turning the schedule off moves nothing.",
			facts:  running(func(f *lifecycle.Facts) { f.Enabled, f.Wanted, f.Change = false, false, time.Time{} }),
			want:   lifecycle.Decision{Phase: lifecycle.Disabled, Action: lifecycle.Hold, Reason: lifecycle.ScheduleDisabled},
		},
		"DisabledKeepsTheDeadlineOfADeparture": {
			reason: "What has begun ends in its budget, whatever is turned off meanwhile.",
			facts: running(func(f *lifecycle.Facts) {
				leaving(f)
				f.Enabled, f.Wanted, f.Change, f.Deadline = false, false, time.Time{}, noon
			}),
			want: lifecycle.Decision{Phase: lifecycle.Disabled, Action: lifecycle.Expedite, Reason: lifecycle.ScheduleDisabled},
		},
		"EnabledAgain": {
			reason: "Disabled goes to Pending, where the schedule is judged anew.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase = lifecycle.Disabled }),
			want:   lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.NotEvaluated, Recheck: evening, Again: true},
		},
		"InterruptedGoesOn": {
			reason: "Its Node may be cordoned, whatever the window says after the move.",
			facts:  running(func(f *lifecycle.Facts) { f.Interrupted = true }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown, Recheck: evening},
		},
		"MovedSettlesFirst": {
			reason: "Cluster API deletes the Node of a Machine if it knows it.",
			facts: running(func(f *lifecycle.Facts) {
				f.Wanted, f.Settling, f.SettledBy = false, true, noon.Add(time.Minute)
			}),
			want: lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Hold, Reason: lifecycle.GracefulShutdown, Recheck: noon.Add(time.Minute)},
		},
		"InterruptedGoesOnWhileDisabled": {
			reason: "What has begun ends, whatever is turned off meanwhile.",
			facts: running(func(f *lifecycle.Facts) {
				f.Interrupted, f.Enabled, f.Wanted, f.Change = true, false, false, time.Time{}
			}),
			want: lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown},
		},
		"UnreadableIsNotOutside": {
			reason: "Unknown is not \"no\": a running machine is left running.",
			facts:  running(func(f *lifecycle.Facts) { f.Readable, f.Wanted, f.Change = false, false, time.Time{} }),
			want:   lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Hold, Reason: lifecycle.ScheduleUnreadable},
		},
		"UnreadableStartsNothing": {
			reason: "Nor is it \"yes\".",
			facts: running(func(f *lifecycle.Facts) {
				nothing(f)
				f.Phase, f.Readable, f.Wanted, f.Change = "", false, false, time.Time{}
			}),
			want: lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.ScheduleUnreadable},
		},
		"UnseenMayStillBeLeaving": {
			reason: "The window has opened again, and it is unknown whether the departure is over.",
			facts: running(func(f *lifecycle.Facts) {
				nothing(f)
				f.Phase, f.Infrastructure = lifecycle.ShuttingDown, lifecycle.Unknown
			}),
			want: lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Hold, Reason: lifecycle.ReferencesUnreadable, Recheck: evening},
		},
		"MissingClusterWaits": {
			reason: "There is nothing to join; the Cluster's appearance wakes us.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase, f.Cluster = lifecycle.Pending, lifecycle.Absent }),
			want:   lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.NoCluster, Recheck: evening},
		},
		"ClusterLeavingTakesTheMachine": {
			reason: "Cluster API waits for Machines that another controller owns.",
			facts:  running(func(f *lifecycle.Facts) { f.Cluster = lifecycle.Leaving }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.ClusterDeleting, Cause: lifecycle.ClusterDeleted, Recheck: evening},
		},
		"ClusterLeavingStartsNothing": {
			reason: "No machine joins a Cluster that is being deleted.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Cluster = lifecycle.Leaving }),
			want:   lifecycle.Decision{Phase: lifecycle.Inactive, Action: lifecycle.Hold, Reason: lifecycle.ClusterDeleting, Recheck: evening},
		},
		"DeletionDepartsGracefully": {
			reason: "Deleting the object is no emergency.",
			facts:  running(func(f *lifecycle.Facts) { f.Deleting = true }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.ObjectDeleted, Recheck: evening},
		},
		"DeletionWhileDisabledDeparts": {
			reason: "In every phase: a disabled object does not leave its Machine behind.",
			facts:  running(func(f *lifecycle.Facts) { f.Deleting, f.Enabled, f.Phase = true, false, lifecycle.Disabled }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Depart, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.ObjectDeleted, Recheck: evening},
		},
		"DeletionWithKillSwitchRemoves": {
			reason: "Either asks for no grace.",
			facts:  running(func(f *lifecycle.Facts) { f.Deleting, f.KillSwitch = true, true }),
			want:   lifecycle.Decision{Phase: lifecycle.Terminated, Action: lifecycle.Remove, Reason: lifecycle.KillSwitchActing, Cause: lifecycle.KillSwitch, Recheck: evening},
		},
		"DeletionReleasesLast": {
			reason: "The finalizer goes when nothing is left.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Deleting = true }),
			want:   lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Release, Reason: lifecycle.GracefulShutdown, Recheck: evening},
		},
		"ErrorTriesAgainOnItsWayToPending": {
			reason: "Error ends only with success, and success leads to Pending.",
			facts:  running(func(f *lifecycle.Facts) { nothing(f); f.Phase = lifecycle.Error }),
			want:   lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Ensure, Reason: lifecycle.NotEvaluated, Recheck: evening, Again: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lifecycle.Decide(tc.facts)); diff != "" {
				t.Errorf("%s\nDecide(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDecideReclaim(t *testing.T) {
	cases := map[string]struct {
		reason string
		facts  lifecycle.ReclaimFacts
		want   lifecycle.Step
	}{
		"NothingAsked":             {"There is no request.", lifecycle.ReclaimFacts{Machine: lifecycle.Present}, lifecycle.NoStep},
		"AskedIsRememberedFirst":   {"A crash must not lose the request.", lifecycle.ReclaimFacts{Request: lifecycle.FreshRequest, Machine: lifecycle.Present}, lifecycle.RecordRequest},
		"AskedInTheMiddleOfADrain": {"A departure under way is cut short.", lifecycle.ReclaimFacts{Request: lifecycle.FreshRequest, Machine: lifecycle.Leaving}, lifecycle.RecordRequest},
		"AskedWithoutMachine":      {"There is nothing to give back.", lifecycle.ReclaimFacts{Request: lifecycle.FreshRequest}, lifecycle.NoStep},
		"RememberedIsEjected":      {"Also after a restart.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Present}, lifecycle.Eject},
		"EjectedIsAwaited":         {"Nothing is left to hasten.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Leaving, Ejected: true}, lifecycle.WaitForRemoval},
		"ReturnedIsEjected":        {"A person may ask while the machine is being made.", lifecycle.ReclaimFacts{Reappeared: true, Machine: lifecycle.Present}, lifecycle.Eject},
		"RestOfItIsEjected":        {"Its infrastructure may have been all that was made.", lifecycle.ReclaimFacts{Reappeared: true}, lifecycle.Eject},
		"ReturnedIsNotTurnedOff":   {"The schedule is off already.", lifecycle.ReclaimFacts{Reappeared: true, Machine: lifecycle.Leaving, Ejected: true}, lifecycle.NoStep},
		"GoneIsDisarmed":           {"The schedule goes off when the machine is gone, whatever the Node says by then.", lifecycle.ReclaimFacts{Recorded: true, Request: lifecycle.ServedRequest, Node: lifecycle.Present, Ejected: true}, lifecycle.DisableSchedule},
		"PodsStartElsewhere":       {"When the machine is on its way, and not before.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Leaving, Ejected: true, Node: lifecycle.Present}, lifecycle.Evict},
		"EjectedBeforePodsGo":      {"The owner comes before the pods.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Leaving, Node: lifecycle.Present}, lifecycle.Eject},
		"PodsOfALeavingNode":       {"A Node that is held by a finalizer still has pods.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Leaving, Ejected: true, Node: lifecycle.Leaving, InfrastructureGone: true}, lifecycle.Evict},
		"PodsOnce":                 {"Nothing is left to do.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Leaving, Ejected: true, Node: lifecycle.Present, Evicting: true}, lifecycle.WaitForRemoval},
		"NodeOutlivesItsMachine":   {"The Machine object waits for something, its Node outlived it.", lifecycle.ReclaimFacts{RequestNamesNode: true, Recorded: true, Machine: lifecycle.Leaving, Ejected: true, Node: lifecycle.Present, Evicting: true, InfrastructureGone: true}, lifecycle.DeleteNode},
		"ServedNodeIsDeleted":      {"Nothing else does any more.", lifecycle.ReclaimFacts{RequestNamesNode: true, Request: lifecycle.ServedRequest, Node: lifecycle.Present, InfrastructureGone: true}, lifecycle.DeleteNode},
		"NodeOfAPersonsRequest":    {"Its UID was not known, so it is left to Cluster API.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Leaving, Ejected: true, Node: lifecycle.Present, Evicting: true, InfrastructureGone: true}, lifecycle.WaitForRemoval},
		"ControlPlaneReturned":     {"Not by a record either.", lifecycle.ReclaimFacts{Reappeared: true, Machine: lifecycle.Present, ControlPlane: true}, lifecycle.NoStep},
		"ServedLeavingIsCleared":   {"Last of all.", lifecycle.ReclaimFacts{RequestNamesNode: true, Request: lifecycle.ServedRequest, Node: lifecycle.Leaving, InfrastructureGone: true}, lifecycle.Clear},
		"ServedWithAMachine":       {"A Node that is in use again is never deleted.", lifecycle.ReclaimFacts{RequestNamesNode: true, Request: lifecycle.ServedRequest, Node: lifecycle.Present, Machine: lifecycle.Present}, lifecycle.Clear},
		"LentAgainWithTheTaint":    {"NoExecute repels all pods.", lifecycle.ReclaimFacts{Machine: lifecycle.Present, Node: lifecycle.Present, Evicting: true}, lifecycle.Clear},
		"LeavingWithTheTaint":      {"Its pods must not come back.", lifecycle.ReclaimFacts{Machine: lifecycle.Leaving, Node: lifecycle.Present, Evicting: true}, lifecycle.NoStep},
		"GoneWithTheTaint":         {"There is no machine for pods.", lifecycle.ReclaimFacts{Node: lifecycle.Present, Evicting: true}, lifecycle.NoStep},
		"TakenOffIsWrittenAgain":   {"A tool replaced the object, and the Machine still has the reason.", lifecycle.ReclaimFacts{ForOwner: true, Machine: lifecycle.Leaving}, lifecycle.RestoreRequest},
		"TakenOffAndStillAsked":    {"The Node says more.", lifecycle.ReclaimFacts{ForOwner: true, Machine: lifecycle.Leaving, Request: lifecycle.FreshRequest}, lifecycle.RecordRequest},
		"ReturnedIsNotRecalled":    {"The schedule is off for the same owner.", lifecycle.ReclaimFacts{ForOwner: true, Reappeared: true, Machine: lifecycle.Leaving, Ejected: true}, lifecycle.NoStep},
		"ControlPlaneNotRecalled":  {"Whatever its record says.", lifecycle.ReclaimFacts{ForOwner: true, Machine: lifecycle.Leaving, ControlPlane: true}, lifecycle.NoStep},
		"Forged":                   {"Another host does not take this one away.", lifecycle.ReclaimFacts{Request: lifecycle.ForeignRequest, Machine: lifecycle.Present}, lifecycle.Refuse},
		"ControlPlane":             {"A cluster does not lose its head to an owner.", lifecycle.ReclaimFacts{Request: lifecycle.FreshRequest, Machine: lifecycle.Present, ControlPlane: true}, lifecycle.Refuse},
		"ControlPlaneByHand":       {"Also not by an annotation made by hand.", lifecycle.ReclaimFacts{Recorded: true, Machine: lifecycle.Present, ControlPlane: true}, lifecycle.DropRequest},
		"ServedIsCleared":          {"Last of all.", lifecycle.ReclaimFacts{Request: lifecycle.ServedRequest}, lifecycle.Clear},
		"StaleIsCleared":           {"The agent asks again if its reason still holds.", lifecycle.ReclaimFacts{Request: lifecycle.StaleRequest, Machine: lifecycle.Present}, lifecycle.Clear},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, urgent := lifecycle.Urgent(tc.facts)
			if !urgent {
				got = lifecycle.DecideReclaim(tc.facts)
			}
			if got != tc.want {
				t.Errorf("%s\nthe step of %+v is %s, want %s", tc.reason, tc.facts, got, tc.want)
			}
		})
	}
}

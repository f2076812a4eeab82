// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	five := time.Date(2026, time.March, 2, 17, 0, 0, 0, time.UTC)
	has := func(all ...map[string]condition) map[string]condition {
		m := map[string]condition{}
		for _, one := range all {
			maps.Copy(m, one)
		}
		return m
	}
	one := func(kind, status, reason, message string) map[string]condition {
		return map[string]condition{kind: {status, reason, message}}
	}
	planned := one("MaintenancePlanned", "True", "ScheduledMachineWindowClosing", "The window of ScheduledMachine lab/box closes at 2026-03-02T17:00:00Z")
	draining := one("DrainInProgress", "True", "ScheduledMachineDeparting", "ScheduledMachine lab/box leaves: WindowClosed")
	over := one("DrainInProgress", "False", "ScheduledMachineDrained", "ScheduledMachine lab/box leaves: WindowClosed")
	drained := one("Drained", "True", "ScheduledMachineDrained", "ScheduledMachine lab/box leaves: WindowClosed")
	gone := func(kind string) map[string]condition { return map[string]condition{kind: {}} }
	theirs := one("MaintenancePlanned", "True", "NewDisk", "on Friday")
	before := five.Add(-time.Hour)
	for name, tc := range map[string]struct {
		reason string
		facts  departureFacts
		want   map[string]condition
		again  time.Time
	}{
		"Early":        {"Nothing is near; it looks again when it is.", departureFacts{Now: before, WindowChanges: five}, nil, five.Add(-10 * time.Minute)},
		"Soon":         {"The end is announced.", departureFacts{Now: five.Add(-10 * time.Minute), WindowChanges: five}, planned, time.Time{}},
		"Said":         {"Once.", departureFacts{Now: five.Add(-time.Minute), WindowChanges: five, Has: planned}, nil, time.Time{}},
		"Extended":     {"A person gave the machine more time.", departureFacts{Now: five.Add(-time.Minute), WindowChanges: five.Add(time.Hour), Has: planned}, gone("MaintenancePlanned"), five.Add(50 * time.Minute)},
		"Forever":      {"Or all of it.", departureFacts{Now: five.Add(-time.Minute), Has: planned}, gone("MaintenancePlanned"), time.Time{}},
		"Sooner":       {"Another end is another announcement.", departureFacts{Now: five.Add(-9 * time.Minute), WindowChanges: five.Add(-time.Minute), Has: planned}, one("MaintenancePlanned", "True", "ScheduledMachineWindowClosing", "The window of ScheduledMachine lab/box closes at 2026-03-02T16:59:00Z"), time.Time{}},
		"Off":          {"It is turned off by the flag.", departureFacts{Now: five.Add(-time.Minute), WindowChanges: five, Lead: -1}, nil, time.Time{}},
		"TurnedOff":    {"What an earlier manager said goes.", departureFacts{Now: five.Add(-time.Minute), WindowChanges: five, Lead: -1, Has: planned}, gone("MaintenancePlanned"), time.Time{}},
		"Waits":        {"The window is closed, and the planner has the machine wait: what was said stays, until the next one opens.", departureFacts{Now: five, WindowChanges: five.Add(16 * time.Hour), Due: true, Has: planned}, nil, five.Add(16 * time.Hour)},
		"WaitsLong":    {"There is no next window.", departureFacts{Now: five, Due: true, Has: planned}, nil, time.Time{}},
		"Reopened":     {"It waited until the next window, which ends later.", departureFacts{Now: five.Add(16 * time.Hour), WindowChanges: five.Add(24 * time.Hour), Has: planned}, gone("MaintenancePlanned"), five.Add(24*time.Hour - 10*time.Minute)},
		"Admitted":     {"The departure begins.", departureFacts{Now: five, WindowChanges: five.Add(16 * time.Hour), Due: true, Why: "WindowClosed", Has: planned}, draining, time.Time{}},
		"InTheMiddle":  {"It is said once.", departureFacts{Now: five, Due: true, Why: "WindowClosed", Has: has(planned, draining)}, nil, time.Time{}},
		"Drained":      {"One write says both.", departureFacts{Now: five, Due: true, Why: "WindowClosed", Drained: true, Has: has(planned, draining)}, has(over, drained), time.Time{}},
		"AtTheEnd":     {"Nothing is left to say.", departureFacts{Now: five, Due: true, Why: "WindowClosed", Drained: true, Has: has(planned, over, drained)}, nil, time.Time{}},
		"DrainedLate":  {"A manager that comes late says what is the case.", departureFacts{Now: five, Due: true, Why: "WindowClosed", Drained: true}, drained, time.Time{}},
		"ByOthers":     {"Another client deletes the Machine in the middle of its window.", departureFacts{Now: before, WindowChanges: five, Why: "External"}, one("DrainInProgress", "True", "ScheduledMachineDeparting", "ScheduledMachine lab/box leaves: External"), time.Time{}},
		"Cancelled":    {"The window is open again before anything was taken.", departureFacts{Now: before, WindowChanges: five, Has: has(planned, draining)}, has(gone("MaintenancePlanned"), gone("DrainInProgress")), five.Add(-10 * time.Minute)},
		"Returned":     {"A Node that is there again does not leave.", departureFacts{Now: before, WindowChanges: five, Has: has(over, drained)}, has(gone("DrainInProgress"), gone("Drained")), five.Add(-10 * time.Minute)},
		"Urgent":       {"The owner waits for no write.", departureFacts{Now: five, WindowChanges: five, Urgent: true, Why: "EmergencyReclaim"}, nil, time.Time{}},
		"UrgentMiddle": {"Nor does one in the middle of a departure.", departureFacts{Now: five, Due: true, Urgent: true, Why: "WindowClosed", Has: has(planned, draining)}, nil, time.Time{}},
		"Theirs":       {"Another writer has planned maintenance: its condition stays.", departureFacts{Now: before, WindowChanges: five, Has: theirs}, nil, five.Add(-10 * time.Minute)},
		"TheirsToo":    {"It says already what is to be said.", departureFacts{Now: five.Add(-time.Minute), WindowChanges: five, Has: theirs}, nil, time.Time{}},
		"TheirsNot":    {"Another writer's maintenance is over, and ours begins.", departureFacts{Now: five.Add(-time.Minute), WindowChanges: five, Has: one("MaintenancePlanned", "False", "NewDisk", "done")}, planned, time.Time{}},
		"KubectlDrain": {"A person has drained it.", departureFacts{Now: five, Due: true, Why: "WindowClosed", Drained: true, Has: has(one("DrainInProgress", "False", "KubectlDrain", ""), one("Drained", "True", "KubectlDrain", ""))}, nil, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tc.facts
			f.Name = "lab/box"
			f.Lead = map[bool]time.Duration{true: 10 * time.Minute}[f.Lead == 0]
			d := decideDeparture(f)
			if diff := cmp.Diff(has(tc.want), d.Set); diff != "" || !d.Again.Equal(tc.again) {
				t.Errorf("%s\nagain %s, want %s, -want, +got:\n%s", tc.reason, d.Again, tc.again, diff)
			}
			if f.Has == nil {
				f.Has = map[string]condition{}
			}
			f.Has = maps.Clone(f.Has)
			for kind, c := range d.Set {
				if f.Has[kind] = c; c == (condition{}) {
					delete(f.Has, kind)
				}
			}
			if again := decideDeparture(f); len(again.Set) > 0 {
				t.Errorf("it does not settle: %v", again.Set)
			}
		})
	}
}

// TestOnlyADrainThatEndedIsDrained covers all ways in which Cluster API ends a drain. If pods may remain, the Node must
// not be Drained.
func TestOnlyADrainThatEndedIsDrained(t *testing.T) {
	t.Parallel()
	began := metav1.NewTime(time.Date(2026, time.March, 2, 17, 0, 0, 0, time.UTC))
	later := metav1.NewTime(began.Add(61 * time.Second))
	excluded := map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""}
	const (
		draining       = clusterv1.MachineDeletingDrainingNodeReason
		volumes        = clusterv1.MachineDeletingWaitingForVolumeDetachReason
		hooks          = clusterv1.MachineDeletingWaitingForPreTerminateHookReason
		infrastructure = clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason
	)
	for name, tc := range map[string]struct {
		annotations map[string]string
		deletion    *clusterv1.MachineDeletionStatus
		// deleting is the reason of the condition Deleting. succeeded is the status of DrainingSucceeded, empty if it
		// is absent.
		deleting, succeeded string
		want                bool
	}{
		"Runs":           {},
		"Drains":         {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began}, draining, "False", false},
		"Volumes":        {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began, WaitForNodeVolumeDetachStartTime: later}, volumes, "True", true},
		"Hooks":          {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began, WaitForPreTerminateHookStartTime: later}, hooks, "True", true},
		"Infrastructure": {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began}, infrastructure, "True", true},
		"HurriedAfter":   {excluded, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began, WaitForNodeVolumeDetachStartTime: later}, infrastructure, "True", true},
		"PodsCameBack":   {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began, WaitForNodeVolumeDetachStartTime: later}, draining, "False", false},
		"TimedOut":       {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began, WaitForNodeVolumeDetachStartTime: later}, volumes, "False", false},
		"TimedOutHooks":  {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began, WaitForPreTerminateHookStartTime: later}, hooks, "False", false},
		"Hurried":        {excluded, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began}, infrastructure, "False", false},
		"Skipped":        {excluded, &clusterv1.MachineDeletionStatus{WaitForPreTerminateHookStartTime: later}, hooks, "", false},
		"Taken":          {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began, WaitForPreTerminateHookStartTime: later}, hooks, "False", false},
		"NoReport":       {nil, &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began}, infrastructure, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
			m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(60))
			m.Status.Deletion = tc.deletion
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: tc.deleting}}
			switch tc.succeeded {
			case "True":
				v1beta1conditions.MarkTrue(m, clusterv1.DrainingSucceededV1Beta1Condition)
			case "False":
				v1beta1conditions.MarkFalse(m, clusterv1.DrainingSucceededV1Beta1Condition, clusterv1.DrainingV1Beta1Reason, clusterv1.ConditionSeverityInfo, "")
			}
			if got := drained(m); got != tc.want {
				t.Errorf("drained: %t, want %t", got, tc.want)
			}
		})
	}
}

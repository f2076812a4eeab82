// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// slack is the accepted difference between two records of one instant.
const slack = 5 * time.Second

func TestTimesOutliveAMove(t *testing.T) {
	moved := made.Add(time.Hour)
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	left := func(t time.Time) string {
		d := v1alpha1.NewDeparture(v1alpha1.WindowClosed, t, "a")
		d.MachineUID = "before-the-move"
		return d.String()
	}
	cases := map[string]struct {
		reason      string
		machine     func(*clusterv1.Machine)
		created     time.Time
		leaving     time.Time
		interrupted bool
	}{
		"Moved":    {"It is the machine that was made before.", nil, made, time.Time{}, false},
		"Made":     {"One instant has one time.", func(m *clusterv1.Machine) { m.Annotations[v1alpha1.CreatedAnnotation] = at(moved.Add(-slack)) }, moved, time.Time{}, false},
		"NotOurs":  {"The creation of a foreign Machine is its own.", func(m *clusterv1.Machine) { m.Annotations = nil }, moved, time.Time{}, false},
		"Edited":   {"Nonsense counts for nothing.", func(m *clusterv1.Machine) { m.Annotations[v1alpha1.CreatedAnnotation] = "yesterday" }, moved, time.Time{}, false},
		"Tomorrow": {"Nor does a clock that ran ahead.", func(m *clusterv1.Machine) { m.Annotations[v1alpha1.CreatedAnnotation] = at(moved.Add(time.Hour)) }, moved, time.Time{}, false},
		"Leaves": {"A client removed hook and record.", func(m *clusterv1.Machine) {
			m.DeletionTimestamp = new(metav1.NewTime(moved))
			delete(m.Annotations, v1alpha1.PreDrainHookAnnotation)
		}, made, moved, false},
		"Left": {
			"The record of another Machine is a request: the departure has not started here.",
			func(m *clusterv1.Machine) { m.Annotations[v1alpha1.DepartureAnnotation] = left(made) },
			made,
			time.Time{},
			true,
		},
		"Refused": {
			"It was not deleted, although that was requested.",
			func(m *clusterv1.Machine) {
				d := v1alpha1.NewDeparture(v1alpha1.WindowClosed, made, "a")
				d.MachineUID = m.UID
				m.Annotations[v1alpha1.DepartureAnnotation] = d.String()
			},
			made,
			time.Time{},
			false,
		},
		"RefusedAtOnce": {
			"Who wants it at once waits since then.",
			func(m *clusterv1.Machine) {
				d := v1alpha1.NewDeparture(v1alpha1.KilledByPerson, made, "a")
				d.MachineUID = m.UID
				m.Annotations[v1alpha1.DepartureAnnotation] = d.String()
			},
			made, made, false,
		},
		"WantedAtOnceNoMore": {
			"The urgent request is withdrawn.",
			func(m *clusterv1.Machine) {
				d := v1alpha1.NewDeparture(v1alpha1.KilledByPerson, made, "a")
				d.MachineUID = m.UID
				m.Annotations[v1alpha1.DepartureAnnotation] = d.String()
			},
			made,
			time.Time{},
			false,
		},
		"LeavesAgain": {
			"Our hook holds it, and the record is of another Machine.",
			func(m *clusterv1.Machine) {
				m.DeletionTimestamp, m.Annotations[v1alpha1.DepartureAnnotation] = new(metav1.NewTime(moved)), left(made)
			},
			made,
			time.Time{},
			false,
		},
		"Held": {
			"Its budget begins when it is on record, by our clock: the API server's may be another.",
			func(m *clusterv1.Machine) {
				m.DeletionTimestamp, m.Annotations[v1alpha1.PreDrainHookAnnotation] = new(metav1.NewTime(moved)), ""
			},
			made,
			time.Time{},
			false,
		},
		"NonsenseOnRecord": {
			"It counts for nothing.",
			func(m *clusterv1.Machine) {
				m.DeletionTimestamp, m.Annotations[v1alpha1.DepartureAnnotation] = new(metav1.NewTime(moved)), "{}"
				delete(m.Annotations, v1alpha1.PreDrainHookAnnotation)
			},
			made, moved, false,
		},
		"TomorrowOnRecord": {
			"Nor does a record of a time to come: its budget would have no end.",
			func(m *clusterv1.Machine) {
				m.DeletionTimestamp, m.Annotations[v1alpha1.DepartureAnnotation] = new(metav1.NewTime(moved)), left(moved.Add(24*time.Hour))
				delete(m.Annotations, v1alpha1.PreDrainHookAnnotation)
			},
			made, moved, false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := live(t, machineOf(nil))
			m.CreationTimestamp = metav1.NewTime(moved)
			if tc.machine != nil {
				tc.machine(m)
			}
			if got := children.CreatedAt(m); !got.Equal(tc.created) {
				t.Errorf("%s\nCreatedAt = %v, want %v", tc.reason, got, tc.created)
			}
			sm := &v1alpha1.ScheduledMachine{}
			sm.Spec.KillSwitch = name == "RefusedAtOnce"
			if got := children.LeavingSince(m, sm, moved); !got.Equal(tc.leaving) {
				t.Errorf("%s\nLeavingSince = %v, want %v", tc.reason, got, tc.leaving)
			}
			if got, want := children.UrgencyWithdrawn(m, sm), name == "WantedAtOnceNoMore"; got != want {
				t.Errorf("%s\nUrgencyWithdrawn = %t", tc.reason, got)
			}
			if got := children.Interrupted(m); got != tc.interrupted {
				t.Errorf("%s\nInterrupted = %t", tc.reason, got)
			}
		})
	}
}

func TestDepartureRecords(t *testing.T) {
	now := made.Add(time.Hour)
	window := v1alpha1.NewDeparture(v1alpha1.WindowClosed, made.Add(time.Minute), "a1")
	owner := v1alpha1.NewDeparture(v1alpha1.ReclaimedByOwner, now, "b2")
	deleted := func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now)) }
	moved := func(m *clusterv1.Machine) { m.UID = "moved" }
	stays := func(*clusterv1.Machine) {}
	of := func(d v1alpha1.Departure, uid types.UID) v1alpha1.Departure { d.MachineUID = uid; return d }
	unscheduled := func(reason v1alpha1.DepartureReason, at time.Time, id string) v1alpha1.Departure {
		d := v1alpha1.NewDeparture(reason, at, id)
		d.Lane = v1alpha1.UnscheduledLane
		return d
	}
	cases := map[string]struct {
		reason  string
		on      v1alpha1.Departure
		machine func(*clusterv1.Machine)
		write   v1alpha1.Departure
		want    v1alpha1.Departure
	}{
		"First":       {"Nothing is on record.", v1alpha1.Departure{}, stays, window, window},
		"Begun":       {"What has begun has its budget.", window, deleted, v1alpha1.NewDeparture(v1alpha1.DeletedByOthers, now, "b2"), window},
		"Moved":       {"It begins anew, and is the same departure.", window, moved, v1alpha1.NewDeparture(v1alpha1.WindowClosed, now, "b2"), of(v1alpha1.NewDeparture(v1alpha1.WindowClosed, now, "a1"), "moved")},
		"MovedOn":     {"Why it leaves is on record.", window, moved, v1alpha1.NewDeparture("", now, "b2"), of(unscheduled(v1alpha1.WindowClosed, now, "a1"), "moved")},
		"Forged":      {"Nothing shows that its owner wants it: it is drained.", owner, moved, v1alpha1.NewDeparture("", now, "c3"), of(unscheduled(v1alpha1.DeletedByOthers, now, "c3"), "moved")},
		"Refused":     {"The deletion was refused an hour ago: the budget is a new one, and the departure the same.", window, stays, v1alpha1.NewDeparture(v1alpha1.WindowClosed, now, "b2"), v1alpha1.NewDeparture(v1alpha1.WindowClosed, now, "a1")},
		"OwnerComes":  {"In the middle of a departure.", window, deleted, owner, owner},
		"OwnerStays":  {"Nothing makes that less urgent.", owner, deleted, v1alpha1.NewDeparture(v1alpha1.WindowClosed, now, "c3"), owner},
		"KilledTwice": {"Nor another of the kind.", owner, deleted, v1alpha1.NewDeparture(v1alpha1.KilledByPerson, now, "c3"), owner},
		"NoReason":    {"A writer without a reason writes nothing.", window, stays, v1alpha1.NewDeparture("", now, "c3"), window},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := live(t, machineOf(nil))
			m.CreationTimestamp, m.UID = metav1.NewTime(made), ""
			if tc.on.Reason != "" {
				m.Annotations[v1alpha1.DepartureAnnotation] = tc.on.String()
			}
			tc.machine(m)
			children.Record(m, tc.write)
			if got := m.Annotations[v1alpha1.DepartureAnnotation]; got != tc.want.String() {
				t.Errorf("%s\non record is %s, want %s", tc.reason, got, tc.want)
			}
			if got, want := children.CanWithdraw(m), m.DeletionTimestamp == nil; got != want {
				t.Errorf("CanWithdraw = %t, want %t", got, want)
			}
		})
	}
}

func TestAMovedMachineSettles(t *testing.T) {
	moved := made.Add(time.Hour)
	ready := func(status metav1.ConditionStatus) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) {
			m.Status.Conditions = []metav1.Condition{{
				Type: clusterv1.MachineNodeReadyCondition, Status: status, LastTransitionTime: metav1.NewTime(moved),
			}}
		}
	}
	cases := map[string]struct {
		reason  string
		machine func(*clusterv1.Machine)
		after   time.Duration
		want    bool
		by      time.Time
	}{
		"Arrived":     {"Cluster API has not looked at it.", nil, time.Hour, true, time.Time{}},
		"Unreachable": {"It has looked, and did not see the workload cluster yet.", ready(metav1.ConditionUnknown), time.Second, true, moved.Add(time.Minute)},
		"StaysSo":     {"The wait for that is bounded.", ready(metav1.ConditionUnknown), time.Minute, false, moved.Add(time.Minute)},
		"NoNode":      {"It has looked, and there is none.", ready(metav1.ConditionFalse), time.Second, false, time.Time{}},
		"Found":       {"It has its Node.", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "box" }, time.Second, false, time.Time{}},
		"NotMade":     {"It had no Node when it was moved.", func(m *clusterv1.Machine) { m.Spec.ProviderID = "" }, time.Second, false, time.Time{}},
		"ClockBehind": {"A manager whose clock is behind made it, for an object that is older.", nil, time.Second, false, time.Time{}},
		"NotMoved":    {"It is where it was made.", func(m *clusterv1.Machine) { m.CreationTimestamp = metav1.NewTime(made) }, time.Second, false, time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := live(t, machineOf(nil))
			m.CreationTimestamp, m.Spec.ProviderID = metav1.NewTime(moved), "lab://box"
			if tc.machine != nil {
				tc.machine(m)
			}
			sm := &v1alpha1.ScheduledMachine{}
			sm.CreationTimestamp = metav1.NewTime(moved)
			if name == "ClockBehind" {
				sm.CreationTimestamp = metav1.NewTime(made.Add(-time.Hour))
			}
			if got, by := children.Settling(m, sm, moved.Add(tc.after)); got != tc.want || !by.Equal(tc.by) {
				t.Errorf("%s\nSettling = %t by %v, want %t by %v", tc.reason, got, by, tc.want, tc.by)
			}
		})
	}
}

func TestForOwner(t *testing.T) {
	record := func(reason v1alpha1.DepartureReason, uid types.UID) string {
		d := v1alpha1.NewDeparture(reason, made, "a")
		d.MachineUID = uid
		return d.String()
	}
	for name, tc := range map[string]struct {
		reason  string
		record  string
		leaving bool
		want    bool
	}{
		"Asked":         {"Its owner asked, and it goes.", record(v1alpha1.ReclaimedByOwner, "m"), true, true},
		"Stays":         {"It is not being deleted.", record(v1alpha1.ReclaimedByOwner, "m"), false, false},
		"Closed":        {"It goes for another reason.", record(v1alpha1.WindowClosed, "m"), true, false},
		"AnotherBefore": {"The record came along in a move or a restore.", record(v1alpha1.ReclaimedByOwner, "before"), true, false},
		"NoRecord":      {"No reason is recorded.", "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := live(t, machineOf(nil))
			m.UID = "m"
			m.Annotations[v1alpha1.DepartureAnnotation] = tc.record
			if tc.leaving {
				m.DeletionTimestamp = new(metav1.NewTime(made))
			}
			if got := children.ForOwner(m, made.Add(time.Minute)); got != tc.want {
				t.Errorf("%s\nForOwner = %t", tc.reason, got)
			}
		})
	}
}

// TestGraceDuringADeparture edits gracefulShutdownTimeout after a departure has started.
func TestGraceDuringADeparture(t *testing.T) {
	now := made.Add(time.Minute)
	for name, tc := range map[string]struct{ recorded, edited, want string }{
		"Shorter":    {"600s", "1s", "10m"},
		"Longer":     {"600s", "20m", "20m"},
		"NoRecord":   {"", "20m", "20m"},
		"Unreadable": {"9999999999h", "20m", "20m"},
		"Negative":   {"-5s", "20m", "20m"},
		"NoOwner":    {"600s", "", "10m"},
	} {
		t.Run(name, func(t *testing.T) {
			d := v1alpha1.NewDeparture(v1alpha1.WindowClosed, made, "a")
			d.MachineUID, d.Grace = "machine", tc.recorded
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				UID: "machine", DeletionTimestamp: new(metav1.NewTime(made)), Annotations: map[string]string{v1alpha1.DepartureAnnotation: d.String()},
			}}
			var sm *v1alpha1.ScheduledMachine
			if tc.edited != "" {
				sm = &v1alpha1.ScheduledMachine{Spec: v1alpha1.ScheduledMachineSpec{GracefulShutdownTimeout: tc.edited}}
			}
			want, err := time.ParseDuration(tc.want)
			if err != nil {
				t.Fatal(err)
			}
			if got := children.DeadlineOf(m, sm, now); !got.Equal(made.Add(want)) {
				t.Errorf("the grace ends after %s, want %s", got.Sub(made), want)
			}
			m.DeletionTimestamp, m.Annotations = nil, nil
			if got := children.DeadlineOf(m, sm, now); !got.IsZero() {
				t.Errorf("a Machine that stays has the deadline %s", got)
			}
		})
	}
}

// TestTheGraceAfterAPause checks when the grace begins.
func TestTheGraceAfterAPause(t *testing.T) {
	now := made.Add(time.Hour)
	for name, tc := range map[string]struct {
		status  metav1.ConditionStatus
		changed time.Time
		want    time.Time
	}{
		"Paused":     {metav1.ConditionTrue, made.Add(time.Minute), now},
		"Ended":      {metav1.ConditionFalse, made.Add(time.Minute), made.Add(time.Minute)},
		"Before":     {metav1.ConditionFalse, made.Add(-time.Minute), made},
		"ClockAhead": {metav1.ConditionFalse, now.Add(24 * time.Hour), made},
	} {
		t.Run(name, func(t *testing.T) {
			d := v1alpha1.NewDeparture(v1alpha1.WindowClosed, made, "a")
			d.MachineUID = "machine"
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				UID: "machine", DeletionTimestamp: new(metav1.NewTime(made)), Annotations: map[string]string{v1alpha1.DepartureAnnotation: d.String()},
			}}
			sm := &v1alpha1.ScheduledMachine{}
			conditions.Set(sm, metav1.Condition{Type: clusterv1.PausedCondition, Status: tc.status, Reason: "Test", LastTransitionTime: metav1.NewTime(tc.changed)})
			if got := children.GraceBegan(m, sm, now); !got.Equal(tc.want) {
				t.Errorf("it begins at %s, want %s", got, tc.want)
			}
		})
	}
}

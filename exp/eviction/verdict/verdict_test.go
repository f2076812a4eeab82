// SPDX-License-Identifier: Apache-2.0

package verdict_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
)

var noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)

// facts describes a pod that runs on a draining Node, and that is not marked.
func facts() verdict.Facts {
	return verdict.Facts{
		Now: noon, NameProtection: 10 * time.Minute, Node: verdict.Draining,
		Pod:    &verdict.Pod{UID: "p", Created: noon.Add(-time.Hour), Bound: true},
		Policy: &verdict.Policy{Name: "ReschedulePolicy db", HealthyNode: verdict.HealthyAllow, Fallback: verdict.FallbackAllow, Deadline: time.Hour},
	}
}

func asked(since time.Duration) *verdict.Request {
	return &verdict.Request{Since: noon.Add(-since), Queued: noon.Add(-since), Node: verdict.Draining}
}

// moved makes the pod the successor of a moved pod.
func moved(f *verdict.Facts, from verdict.Node) {
	f.Node, f.Pod.Created = verdict.Healthy, noon.Add(-time.Minute)
	m := asked(2 * time.Minute)
	m.Node = from
	f.Moved = append(f.Moved, *m)
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*verdict.Facts)
		answer verdict.Answer
		step   verdict.Write
		out    string
	}{
		"First":        {"It is written down before the operator is asked.", func(*verdict.Facts) {}, verdict.Wait, verdict.Record, verdict.Requested},
		"Recorded":     {"The operator is asked.", func(f *verdict.Facts) { f.Request = asked(0) }, verdict.Wait, verdict.Mark, verdict.Requested},
		"RecordedLong": {"Whoever wrote it down has crashed: the operator was never asked, and has all its time.", func(f *verdict.Facts) { f.Request = asked(9 * time.Hour) }, verdict.Wait, verdict.Queue, verdict.Requested},
		"Waiting":      {"Nothing is written twice.", func(f *verdict.Facts) { f.Request, f.Pod.Marked = asked(time.Minute), true }, verdict.Wait, verdict.None, verdict.Waiting},
		"MarkedByHand": {"A person asked the operator: the deadline is counted from now.", func(f *verdict.Facts) { f.Pod.Marked = true }, verdict.Wait, verdict.Record, verdict.Requested},
		"NoPod":        {"It has moved, or was never there.", func(f *verdict.Facts) { f.Pod = nil }, verdict.Gone, verdict.None, verdict.NoPod},
		"OtherUID":     {"The API server refuses it.", func(f *verdict.Facts) { f.UID = "another" }, verdict.Allow, verdict.None, verdict.OtherPod},
		"SameUID":      {"It is the one that is meant.", func(f *verdict.Facts) { f.UID = "p" }, verdict.Wait, verdict.Record, verdict.Requested},
		"NoPolicy":     {"It is nobody's business.", func(f *verdict.Facts) { f.Policy = nil }, verdict.Allow, verdict.None, verdict.NotSelected},
		"Finished":     {"There is nothing to move.", func(f *verdict.Facts) { f.Pod.Finished = true }, verdict.Allow, verdict.None, verdict.NotRunning},
		"Leaving":      {"It is on its way.", func(f *verdict.Facts) { f.Pod.Leaving = true }, verdict.Allow, verdict.None, verdict.NotRunning},
		"Unbound":      {"It runs nowhere.", func(f *verdict.Facts) { f.Pod.Bound = false }, verdict.Allow, verdict.None, verdict.NotRunning},
		"Pending":      {"It does not run yet, on a Node that is drained.", func(f *verdict.Facts) { f.Pod.Pending = true }, verdict.Allow, verdict.None, verdict.NotRunning},
		"NodeUnknown":  {"What cannot be read is neither drained nor healthy: nothing is killed, and nobody is asked.", func(f *verdict.Facts) { f.Node = verdict.Unknown }, verdict.Wait, verdict.None, verdict.NodeUnknown},
		"NodeAbsent":   {"There is nothing to save it from.", func(f *verdict.Facts) { f.Node = verdict.Absent }, verdict.Allow, verdict.None, verdict.NoNode},
		"Healthy":      {"Disruption budgets decide.", func(f *verdict.Facts) { f.Node = verdict.Healthy }, verdict.Allow, verdict.None, verdict.HealthyNode},
		"HealthyDeny": {"People said so.", func(f *verdict.Facts) {
			f.Node, f.Policy.HealthyNode = verdict.Healthy, verdict.HealthyDeny
		}, verdict.Wait, verdict.None, verdict.Denied},
		"HealthyDenyPending": {"It does not run yet.", func(f *verdict.Facts) {
			f.Node, f.Policy.HealthyNode, f.Pod.Pending = verdict.Healthy, verdict.HealthyDeny, true
		}, verdict.Allow, verdict.None, verdict.NotRunning},
		"HealthyRelocate": {"People said so.", func(f *verdict.Facts) {
			f.Node, f.Policy.HealthyNode = verdict.Healthy, verdict.HealthyRelocate
		}, verdict.Wait, verdict.Record, verdict.Requested},
		"Overdue": {"Disruption budgets decide.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(time.Hour), true, noon.Add(-time.Hour)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"OverdueDeny": {"People said so.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Policy.Fallback = asked(time.Hour), true, verdict.FallbackDeny
		}, verdict.Wait, verdict.None, verdict.Overdue},
		"OverdueDelete": {"People said so.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Policy.Fallback = asked(time.Hour), true, verdict.FallbackDelete
		}, verdict.Wait, verdict.Delete, verdict.Overdue},
		"AskedLate": {"The time that it waited for its turn does not count.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(2*time.Hour), true, noon.Add(-time.Minute)
			f.Request.Queued, f.Request.FirstMarked = noon.Add(-time.Minute), noon.Add(-time.Minute)
		}, verdict.Wait, verdict.None, verdict.Waiting},
		"NotWrittenDown": {"Whoever asked its operator ended before it wrote that down.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(time.Minute), true, noon.Add(-time.Minute)
		}, verdict.Wait, verdict.Confirm, verdict.Waiting},
		"NotWrittenDownOverdue": {"The deadline is over all the same.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(time.Hour), true, noon.Add(-time.Hour)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"RewrittenNotWrittenDown": {"A person asked the operator, and has the pod say that it was just now.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(time.Hour), true, noon.Add(-time.Second)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"RewrittenSoon": {"What we did not write is not written down as ours.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(2*time.Minute), true, noon.Add(-time.Second)
		}, verdict.Wait, verdict.None, verdict.Waiting},
		"MarkedInTheFuture": {"Nobody extends the deadline by a time that has not come.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(2*time.Hour), true, noon.Add(time.Hour)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"MarkedByAClockThatIsAhead": {"It had waited for its turn, and its operator has just been asked.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(2*time.Hour), true, noon.Add(50*time.Millisecond)
			f.Request.Queued = noon.Add(-time.Second)
		}, verdict.Wait, verdict.None, verdict.Waiting},
		"MarkedForAnEarlierRequest": {"What was asked before this request says nothing.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(time.Minute), true, noon.Add(-2*time.Hour)
		}, verdict.Wait, verdict.None, verdict.Waiting},
		"MarkTakenAway": {"Its operator does so once it has read it, and is asked no longer than its deadline.", func(f *verdict.Facts) {
			f.Request, f.Pod.MarkedAt = asked(2*time.Hour), noon.Add(-time.Hour)
			f.Request.Queued = noon.Add(-time.Hour)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"Turn":              {"Others are first.", func(f *verdict.Facts) { f.Request, f.Policy.MaxConcurrent, f.Others = asked(0), 1, 1 }, verdict.Wait, verdict.None, verdict.WaitingForTurn},
		"MyTurn":            {"One place is free.", func(f *verdict.Facts) { f.Request, f.Policy.MaxConcurrent, f.Others = asked(0), 2, 1 }, verdict.Wait, verdict.Mark, verdict.Requested},
		"OldTurn":           {"Others may not have counted it.", func(f *verdict.Facts) { f.Request, f.Policy.MaxConcurrent = asked(verdict.QueueTTL), 1 }, verdict.Wait, verdict.Queue, verdict.Requested},
		"AgingTurn":         {"Others may not count it any more once it is written.", func(f *verdict.Facts) { f.Request, f.Policy.MaxConcurrent = asked(verdict.QueueTTL-time.Second), 1 }, verdict.Wait, verdict.None, verdict.WaitingForTurn},
		"AgingWithoutTurns": {"Nobody waits for it.", func(f *verdict.Facts) { f.Request = asked(verdict.QueueTTL - time.Second) }, verdict.Wait, verdict.Queue, verdict.Requested},
		"MarkedBefore": {"What an earlier request put there, or what was copied from another pod, says nothing about this one.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(time.Minute), true, noon.Add(-9*time.Hour)
		}, verdict.Wait, verdict.None, verdict.Waiting},
		"TakenOff": {"Its operator has taken the mark off, and left the pod where it is.", func(f *verdict.Facts) {
			f.Request, f.Pod.MarkedAt = asked(time.Minute), noon.Add(-time.Minute)
		}, verdict.Wait, verdict.Queue, verdict.Requested},
		"TakenOffOverdue": {"Its operator has had its time.", func(f *verdict.Facts) {
			f.Request, f.Pod.MarkedAt = asked(time.Hour), noon.Add(-time.Hour)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"TakenOffAltogether": {"Nobody has more time because the pod does not say any more when its operator was asked.", func(f *verdict.Facts) {
			f.Request = asked(2 * time.Hour)
			f.Request.FirstMarked = noon.Add(-time.Hour)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"Rewritten": {"Nor because it says something else.", func(f *verdict.Facts) {
			f.Request, f.Pod.Marked, f.Pod.MarkedAt = asked(2*time.Hour), true, noon.Add(-time.Minute)
			f.Request.FirstMarked = noon.Add(-time.Hour)
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"Refused": {"Its operator cannot be asked, and its time is not over.", func(f *verdict.Facts) {
			f.Request, f.Refused = asked(time.Minute), true
		}, verdict.Wait, verdict.Queue, verdict.Requested},
		"RefusedLong": {"Its operator could not be asked in all that time.", func(f *verdict.Facts) {
			f.Request, f.Refused = asked(time.Hour), true
		}, verdict.Allow, verdict.None, verdict.Overdue},
		"TakenOffBefore": {"It has not been asked by this request.", func(f *verdict.Facts) {
			f.Request, f.Pod.MarkedAt = asked(2*time.Hour), noon.Add(-9*time.Hour)
		}, verdict.Wait, verdict.Queue, verdict.Requested},
		"Withdrawn": {"What was put on the pod is about to be taken away.", func(f *verdict.Facts) {
			f.Request = asked(time.Minute)
			f.Request.Withdrawn = true
		}, verdict.Wait, verdict.None, verdict.Withdrawing},
		"Moved":        {"Nobody means the pod that took its name.", func(f *verdict.Facts) { moved(f, verdict.Draining) }, verdict.Gone, verdict.RemoveTrackingMark, verdict.Rescheduled},
		"MovedGone":    {"The Node that it left has gone, and its drainer may still ask.", func(f *verdict.Facts) { moved(f, verdict.Absent) }, verdict.Gone, verdict.RemoveTrackingMark, verdict.Rescheduled},
		"MovedPending": {"The new pod has no Node yet.", func(f *verdict.Facts) { moved(f, verdict.Draining); f.Pod.Bound = false }, verdict.Gone, verdict.RemoveTrackingMark, verdict.Rescheduled},
		"MovedUnknown": {"Nobody knows whether that Node is drained.", func(f *verdict.Facts) { moved(f, verdict.Unknown) }, verdict.Wait, verdict.None, verdict.NodeUnknown},
		"MovedBack":    {"Nobody drains the Node that it left.", func(f *verdict.Facts) { moved(f, verdict.Healthy) }, verdict.Allow, verdict.None, verdict.HealthyNode},
		"MovedAndMeant": {"Whoever names it by its UID means the pod that took the name.", func(f *verdict.Facts) {
			moved(f, verdict.Draining)
			f.UID = "p"
		}, verdict.Allow, verdict.None, verdict.HealthyNode},
		"MovedLongAgo": {"Who evicts it now means it.", func(f *verdict.Facts) {
			moved(f, verdict.Draining)
			f.Pod.Created, f.Moved[0].Since = noon.Add(-10*time.Minute), noon.Add(-time.Hour)
		}, verdict.Allow, verdict.None, verdict.HealthyNode},
		"MovedWithdrawn": {"That request was taken back.", func(f *verdict.Facts) { moved(f, verdict.Draining); f.Moved[0].Withdrawn = true }, verdict.Allow, verdict.None, verdict.HealthyNode},
		"MovedRelocated": {"It was to leave a Node that nobody drained.", func(f *verdict.Facts) { moved(f, verdict.Healthy); f.Moved[0].Relocation = true }, verdict.Gone, verdict.RemoveTrackingMark, verdict.Rescheduled},
		"MovedSeveral": {"One of the pods that had the name is drained still.", func(f *verdict.Facts) {
			moved(f, verdict.Unknown)
			moved(f, verdict.Draining)
			moved(f, verdict.Healthy)
		}, verdict.Gone, verdict.RemoveTrackingMark, verdict.Rescheduled},
		"MovedSomeUnknown": {"Of one that had the name nobody knows.", func(f *verdict.Facts) {
			moved(f, verdict.Unknown)
			moved(f, verdict.Healthy)
		}, verdict.Wait, verdict.None, verdict.NodeUnknown},
		"MovedLater": {"The other pod is younger than this one.", func(f *verdict.Facts) {
			moved(f, verdict.Draining)
			f.Moved[0].Since = noon
		}, verdict.Allow, verdict.None, verdict.HealthyNode},
		"MovedToDraining": {"It runs on a Node that is drained, and is never said to be gone.", func(f *verdict.Facts) {
			moved(f, verdict.Draining)
			f.Node = verdict.Draining
		}, verdict.Wait, verdict.Record, verdict.Requested},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts()
			tc.change(&f)
			if d := verdict.Decide(f); d.Answer != tc.answer || d.Write != tc.step || d.Outcome != tc.out {
				t.Errorf("%s\ngot %+v", tc.reason, d)
			}
		})
	}
}

// TestNeverGone tries every combination of the other facts. A pod that runs on a draining Node, or on a Node in an
// unknown state, is never reported as gone, and not evicted before its deadline.
func TestNeverGone(t *testing.T) {
	t.Parallel()
	bools, n := []bool{false, true}, 0
	for _, node := range []verdict.Node{verdict.Unknown, verdict.Draining} {
		for _, from := range []verdict.Node{verdict.Unknown, verdict.Absent, verdict.Healthy, verdict.Draining} {
			for _, fallback := range []string{verdict.FallbackAllow, verdict.FallbackDeny, verdict.FallbackDelete} {
				for _, healthy := range []string{verdict.HealthyAllow, verdict.HealthyRelocate, verdict.HealthyDeny} {
					for _, recorded := range []int{0, 1, 2} {
						for bits := range 32 {
							f := facts()
							moved(&f, from)
							f.Node, f.Policy.Fallback, f.Policy.HealthyNode = node, fallback, healthy
							if recorded > 0 {
								f.Request = asked(time.Second)
								f.Request.Withdrawn = recorded == 2
							}
							f.Pod.Marked, f.Moved[0].Withdrawn, f.Moved[0].Relocation = bools[bits&1], bools[bits>>1&1], bools[bits>>2&1]
							f.Policy.MaxConcurrent, f.Others = bits>>3&1, bits>>4&1
							if d := verdict.Decide(f); d.Answer != verdict.Wait || d.Message == "" || d.Cause == "" {
								t.Fatalf("%+v\ngot %+v", f, d)
							}
							n++
						}
					}
				}
			}
		}
	}
	if n != 2*4*3*3*3*32 {
		t.Errorf("%d combinations", n)
	}
}

// relocated sets a request of that age, from a Node that is not draining.
func relocated(k *verdict.RequestFacts, since time.Duration) {
	k.Request = *asked(since)
	k.Relocation, k.Node = true, verdict.Healthy
}

func TestTend(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*verdict.RequestFacts)
		fate   verdict.Change
		again  time.Duration
	}{
		"Waits":             {"Its Node is drained.", func(*verdict.RequestFacts) {}, verdict.NoChange, time.Minute},
		"Uncordoned":        {"Nobody drains it any more.", func(k *verdict.RequestFacts) { k.Node = verdict.Healthy }, verdict.Withdraw, 0},
		"Due":               {"Its operator has had its time then.", func(k *verdict.RequestFacts) { k.FirstMarked, k.Deadline = noon.Add(-time.Minute), 70*time.Second }, verdict.NoChange, 10 * time.Second},
		"Unknown":           {"Nobody knows, and nothing is taken back for that.", func(k *verdict.RequestFacts) { k.Node = verdict.Unknown }, verdict.NoChange, time.Minute},
		"NodeGone":          {"Its pod will be gone soon.", func(k *verdict.RequestFacts) { k.Node = verdict.Absent }, verdict.NoChange, time.Minute},
		"NoPolicy":          {"Nobody asks for it any more.", func(k *verdict.RequestFacts) { k.Selected = false }, verdict.Withdraw, 0},
		"Relocation":        {"Nobody need drain its Node.", func(k *verdict.RequestFacts) { k.Relocation, k.Node = true, verdict.Healthy }, verdict.NoChange, time.Minute},
		"RelocationOverdue": {"Whoever evicts it is to hear of the fallback.", func(k *verdict.RequestFacts) { relocated(k, time.Hour) }, verdict.NoChange, time.Minute},
		"RelocationEnd":     {"Nobody evicts it any more.", func(k *verdict.RequestFacts) { relocated(k, time.Hour+10*time.Minute) }, verdict.Withdraw, 0},
		"RelocationAskedLate": {"The time that it waited for its turn does not count.", func(k *verdict.RequestFacts) {
			relocated(k, 9*time.Hour)
			k.Pod.Marked, k.Pod.MarkedAt = true, noon.Add(-time.Minute)
			k.Queued = noon.Add(-time.Minute)
		}, verdict.NoChange, time.Minute},
		"RelocationDrained": {"Its Node is drained now.", func(k *verdict.RequestFacts) { relocated(k, 9*time.Hour); k.Node = verdict.Draining }, verdict.NoChange, time.Minute},
		"Withdrawn":         {"Who read it before may still write.", func(k *verdict.RequestFacts) { k.Withdrawn, k.WithdrawnAt = true, noon.Add(-time.Second) }, verdict.NoChange, 29 * time.Second},
		"WithdrawnAhead":    {"The clock of who withdrew it was ahead.", func(k *verdict.RequestFacts) { k.Withdrawn, k.WithdrawnAt = true, noon.Add(time.Hour) }, verdict.Withdraw, 0},
		"TakeBack":          {"Nobody writes any more.", func(k *verdict.RequestFacts) { k.Withdrawn, k.WithdrawnAt = true, noon.Add(-verdict.MarkRemovalDelay) }, verdict.RemoveMark, 0},
		"Moved":             {"A drainer may ask for it by its name.", func(k *verdict.RequestFacts) { k.Pod, k.GoneSince = nil, noon.Add(-time.Minute) }, verdict.NoChange, 9 * time.Minute},
		"MovedLongAgo":      {"No drainer asks any more.", func(k *verdict.RequestFacts) { k.Pod, k.GoneSince = nil, noon.Add(-10*time.Minute) }, verdict.Drop, 0},
		"SameName": {"The new pod has its own age.", func(k *verdict.RequestFacts) {
			k.Same, k.GoneSince, k.Pod.Created = false, noon.Add(-time.Hour), noon.Add(-time.Minute)
		}, verdict.NoChange, 9 * time.Minute},
		"SameNameOld":   {"Who evicts it means it.", func(k *verdict.RequestFacts) { k.Same, k.GoneSince = false, noon }, verdict.Drop, 0},
		"Finished":      {"It need not be moved.", func(k *verdict.RequestFacts) { k.Pod.Finished, k.GoneSince = true, noon.Add(-10*time.Minute) }, verdict.Drop, 0},
		"WithdrawnGone": {"There is nothing to take back.", func(k *verdict.RequestFacts) { k.Withdrawn, k.Pod = true, nil }, verdict.Drop, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := verdict.RequestFacts{
				Now: noon, Pod: &verdict.Pod{UID: "p", Created: noon.Add(-time.Hour), Bound: true}, Same: true,
				Request: *asked(time.Minute), Selected: true, Deadline: time.Hour, NameProtection: 10 * time.Minute,
			}
			tc.change(&k)
			fate, again := verdict.DecideRequest(k)
			want := time.Time{}
			if tc.again > 0 {
				want = noon.Add(tc.again)
			}
			if fate != tc.fate || !again.Equal(want) {
				t.Errorf("%s\ngot %d, %s", tc.reason, fate, again)
			}
		})
	}
}

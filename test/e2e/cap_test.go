// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestMachinesLeaveTwoAtATime closes the windows of 40 machines by an edit, while the manager has its default rails.
// Meanwhile an owner makes a request, and the manager is killed and restarted, so it is not parallel. The starts come
// from the API server's audit log.
func TestMachinesLeaveTwoAtATime(t *testing.T) {
	const machines = 40
	l := newLab(t, "cap")
	var all []*v1alpha1.ScheduledMachine
	for i := range machines {
		all = append(all, l.started(fmt.Sprintf("box-%02d", i), func(sm *v1alpha1.ScheduledMachine) {
			if i == 0 {
				sm.Spec.Priority = new(int32(100)) // The owner's machine would be the last.
			}
		}))
	}
	for _, sm := range all {
		l.waitPhase(sm, active, metav1.ConditionTrue)
	}
	asks := all[0]
	node := l.node(asks)
	manager := l.asShips(asks)

	mark := l.mark()
	l.withoutWebhooks(func() {
		for _, sm := range all {
			l.closeWindow(sm)
		}
	})
	l.waitStarts(mark, 3)
	asked := time.Now()
	l.askBack(node, "java")
	l.wantReclaimed(asks, "java")
	if took := l.starts(mark)[asks.Name+"-machine"].Sub(asked); took > startWindow {
		t.Errorf("an owner waited for %s while others left", took)
	}
	l.wantTwoAtATime(mark, asks)
	l.must(manager.Kill())
	l.must(manager.Start(timeout(t, patience)))
	before := len(l.starts(mark))
	l.waitStarts(mark, before+2)

	l.wantTwoAtATime(mark, asks)
	l.waitCondition(all[machines-1], v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.BlastRadiusCapReason)
}

const (
	// startWindow is the window of the departure cap.
	startWindow = 10 * time.Second
	// heard is how much later than its decision a start may reach the API server.
	heard = 2 * time.Second
)

// wantTwoAtATime checks the starts since a mark, except the start of an owner's machine.
func (l *lab) wantTwoAtATime(mark int, owners *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	const most = 2
	var voluntary []time.Time
	for name, at := range l.starts(mark) {
		if name != owners.Name+"-machine" {
			voluntary = append(voluntary, at)
		}
	}
	slices.SortFunc(voluntary, time.Time.Compare)
	for i := most; i < len(voluntary); i++ {
		if d := voluntary[i].Sub(voluntary[i-most]); d < startWindow-heard {
			l.t.Errorf("%d start within %s", most+1, d)
		}
	}
}

// starts returns the Machines that the manager has begun to delete since a mark, with the times.
func (l *lab) starts(since int) map[string]time.Time {
	l.t.Helper()
	starts := map[string]time.Time{}
	for _, e := range l.audit(shared.Management)[since:] {
		if ref := e.ObjectRef; e.User.Username == system.ManagerUser && e.Verb == "delete" && isWrite(e) && accepted(e) &&
			ref.Resource == "machines" && ref.Namespace == l.Key.Namespace {
			if _, again := starts[ref.Name]; !again {
				starts[ref.Name] = e.RequestReceivedTimestamp.Time
			}
		}
	}
	return starts
}

// waitStarts waits until that many Machines are being deleted.
func (l *lab) waitStarts(since, n int) {
	l.t.Helper()
	l.until(func(context.Context) error {
		if got := len(l.starts(since)); got < n {
			return fmt.Errorf("%d machines have started to leave, want %d", got, n)
		}
		return nil
	})
}

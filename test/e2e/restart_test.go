// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tests of this file stop shared programs, so they are not parallel.

func TestManagerKilledInTheMiddleOfEmergencies(t *testing.T) {
	l := newLab(t, "crash")
	random := seeded(t)
	var machines []*v1alpha1.ScheduledMachine
	for i := range 6 {
		machines = append(machines, l.started(fmt.Sprintf("box%d", i), nil))
	}
	var nodes []*corev1.Node
	for _, sm := range machines {
		l.waitPhase(sm, active, metav1.ConditionTrue)
		node := l.node(sm)
		l.keepNode(node)
		nodes = append(nodes, node)
	}
	for i, sm := range machines {
		l.askBack(nodes[i], "java")
		// Two of three crashes hit removals in progress, each at another point; the last two machines leave while the
		// manager is down.
		if i%2 == 1 {
			pause(t, time.Duration(random.IntN(400))*time.Millisecond)
			l.must(shared.Manager.Kill())
			t.Logf("killed the manager after request %d", i+1)
		}
		if i == 1 || i == 3 {
			l.must(shared.Manager.Start(timeout(t, patience)))
		}
		_ = sm
	}
	pause(t, 2*shortly)
	l.must(shared.Manager.Start(timeout(t, patience)))
	for i, sm := range machines {
		l.wantReclaimed(sm, "java")
		l.waitCleared(nodes[i])
		if v, ok := sm.Annotations[v1alpha1.ReclaimedAnnotation]; !ok || !strings.Contains(v, nodes[i].Name) {
			t.Errorf("what happened to %s must be on record: %q", sm.Name, v)
		}
	}
	for _, sm := range machines {
		if made := l.created(0, "machines", familyOf(sm).machine.Name); made != 1 {
			t.Errorf("Machine of %s must have been made once, not %d times", sm.Name, made)
		}
	}
}

func TestClusterAPIRestartsDuringAnEmergency(t *testing.T) {
	long(t)
	l := newLab(t, "core")
	sm := l.running("box", nil)
	l.runPinned(sm, "core-work")
	node := l.node(sm)
	l.must(shared.Core().Kill())
	l.askBack(node, "java")
	l.waitPhase(sm, emergency, "")
	pause(t, 2*shortly)
	l.must(shared.Core().Start(timeout(t, patience)))
	l.wantReclaimed(sm, "java")
}

func TestManagerDoesAfterADowntimeWhatIsAskedNowOnce(t *testing.T) {
	long(t)
	l := newLab(t, "downtime")
	closes := l.running("closes", nil)
	opens := l.started("opens", outside)
	flaps := l.running("flaps", nil)
	loses := l.running("loses", nil)
	goes := l.running("goes", nil)
	l.waitPhase(opens, inactive, "")
	before := l.family(flaps)
	lost := l.family(loses)

	l.must(shared.Manager.Kill())
	mark := l.mark()
	l.withoutWebhooks(func() {
		l.closeWindow(closes)
		l.openWindow(opens)
		l.closeWindow(flaps)
		l.openWindow(flaps)
		l.delete(goes)
	})
	l.delete(lost.infra)
	l.waitGone(lost.infra)
	l.must(shared.Manager.Start(timeout(t, patience)))

	l.waitPhase(closes, inactive, metav1.ConditionTrue)
	l.waitPhase(opens, active, metav1.ConditionTrue)
	l.waitPhase(flaps, active, metav1.ConditionTrue)
	l.waitGone(goes)
	l.nothingLeft(goes)
	l.waitFor(loses, func() error {
		if f := lost.machine; loses.Status.Phase != active || loses.Status.LastScheduledTime.Equal(&f.CreationTimestamp) {
			return fmt.Errorf("it has not been made again: %s", loses.Status.Message)
		}
		return nil
	})
	l.waitPhase(loses, active, metav1.ConditionTrue)
	if err := unchanged(timeout(t, patience), before.objects()...); err != nil {
		t.Errorf("a window that closed and opened while nobody looked is no reason to leave: %v", err)
	}
	for sm, want := range map[*v1alpha1.ScheduledMachine]int{closes: 0, opens: 1, flaps: 0, loses: 1} {
		if made := l.created(mark, "machines", familyOf(sm).machine.Name); made != want {
			t.Errorf("Machine of %s must have been made %d times, not %d", sm.Name, want, made)
		}
	}
}

func TestRestartInSteadyStateWritesNothing(t *testing.T) {
	long(t)
	l := newLab(t, "steady")
	fleet := l.fleet(8)
	l.waitSettled(fleet)
	mark := l.mark()
	l.must(shared.Manager.Stop())
	l.must(shared.Manager.Start(timeout(t, patience)))
	holds(t, 6*time.Second, func(context.Context) error { return nil })
	if writes := l.writes(mark); len(writes) > 0 {
		t.Errorf("a manager that starts and finds everything settled must not write:\n%s", describeAll(writes))
	}
}

// created counts the creations of an object by the manager. An apply of an existing object returns 200, not 201.
func (l *lab) created(since int, resource, name string) int {
	l.t.Helper()
	n := 0
	for _, w := range l.writes(since) {
		if w.ObjectRef.Resource == resource && w.ObjectRef.Name == name && w.ResponseStatus.Code == 201 {
			n++
		}
	}
	return n
}

// withoutWebhooks runs f while the API server does not call the manager's webhook, as if another replica served it.
func (l *lab) withoutWebhooks(f func()) {
	l.t.Helper()
	l.must(shared.WithoutWebhooks(timeout(l.t, patience), l.scheduledMachine("probe", planeMachine), f))
}

// seeded is a random source whose seed is logged, so that a failure can be repeated.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// pause lets time pass for other programs.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	holds(t, d, func(context.Context) error { return nil })
}

// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// slow returns a protected machine in a fleet where one agent may get more programs at a time. Its manager does not
// serve the machines of other tests.
func slow(t *testing.T) *world {
	t.Helper()
	w := protected(t)
	w.r.WithWatchFilter(w.sm.Namespace).RolloutFraction = 50_000
	w.Edit(w.sm, func() { w.sm.Labels = map[string]string{clusterv1.WatchLabel: w.sm.Namespace} })
	w.sm.Status.NodeRef = &v1alpha1.NodeReference{Name: w.node.Name}
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	return w
}

func (w *world) programs(programs ...string) {
	w.Helper()
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = programs })
}

// others has n other agents of a Cluster get programs, the machine's own if the name is "lab".
func (w *world) others(cluster string, n int) {
	w.r.TakeRollout(client.ObjectKey{Namespace: w.sm.Namespace, Name: cluster}, n)
}

// TestProgramsAreAddedAtThePaceOfTheCap adds a program while another agent has got one.
func TestProgramsAreAddedAtThePaceOfTheCap(t *testing.T) {
	for _, cluster := range []string{"lab", "other"} {
		t.Run(cluster, func(t *testing.T) {
			w := slow(t)
			w.others(cluster, 1)
			w.programs("java", "idea")
			w.writes("it has to wait")
			w.wantAgent("java")
			if w.again <= 0 || w.again > departurecap.Window {
				t.Errorf("it is tried again after %v", w.again)
			}
			w.pass(departurecap.Window - time.Second)
			w.wantAgent("java")
			w.pass(time.Second)
			w.wantAgent("java", "idea")
		})
	}
}

// TestFewerProgramsDoNotWait covers the correction of a mistake.
func TestFewerProgramsDoNotWait(t *testing.T) {
	w := slow(t)
	w.programs("java", "idea")
	w.writes("the first agent gets it at once", "patch ConfigMap")
	w.others("lab", 1)
	w.programs("java")
	w.Must(w.reconcile())
	w.wantAgent("java")
}

// TestARepeatedChangeOfProgramsCountsOnce covers a write that fails, and a list that changes again.
func TestARepeatedChangeOfProgramsCountsOnce(t *testing.T) {
	w := slow(t)
	w.programs("java", "idea")
	w.Writes = nil
	w.Fail = func(int) (before, after error) { return errors.New("unavailable"), nil }
	_ = w.reconcile() // The write fails.
	w.Fail = nil
	w.pass(time.Second)
	w.wantAgent("java", "idea")
	w.programs("java", "idea", "bash")
	w.Must(w.reconcile())
	w.wantAgent("java", "idea", "bash")
}

// TestWaitingAgentsWakeOncePerWindow has the changes of a window at two instants. An agent that wakes at the first one's
// end would compete with all others for one change.
func TestWaitingAgentsWakeOncePerWindow(t *testing.T) {
	w := slow(t)
	w.r.RolloutFraction = 2_000_000 // Two changes for one machine.
	w.others("lab", 1)
	w.clock.SetTime(w.clock.Now().Add(5 * time.Second))
	w.others("lab", 1)
	w.programs("java", "idea")
	w.Must(w.reconcile())
	if w.wantAgent("java"); w.again != departurecap.Window {
		t.Errorf("it is tried again after %v, want %v", w.again, departurecap.Window)
	}
}

// slowReader calls then before it reads a Cluster.
type slowReader struct {
	client.Reader
	then func()
}

func (r *slowReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*clusterv1.Cluster); ok {
		r.then()
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}

// TestASlowReadDoesNotShortenTheWindow covers an observation that lasts nearly as long as a window.
func TestASlowReadDoesNotShortenTheWindow(t *testing.T) {
	w := slow(t)
	w.r.Reader = &slowReader{w.r.Reader, func() { w.clock.SetTime(w.clock.Now().Add(9 * time.Second)) }}
	w.programs("java", "idea")
	w.Must(w.reconcile())
	w.wantAgent("java", "idea")
	if at := w.r.ProgramsAdded(client.ObjectKeyFromObject(w.sm)); !at.Equal(w.clock.Now()) {
		t.Errorf("the window begins at %v, want %v", at, w.clock.Now())
	}
}

// TestTheRolloutCountsAgents has three agents in another Cluster, and others that do not count.
func TestTheRolloutCountsAgents(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster string
		changed int
		waits   bool
	}{
		"OwnClusterIsFull":    {"lab", 1, true},
		"OtherClusterIsLarge": {"other", 3, false},
		"AllClustersAreFull":  {"other", 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := slow(t)
			w.r.RolloutFraction = 1_000_000
			for i := range 6 {
				sm := testenv.ScheduledMachine(w.sm.Namespace, fmt.Sprintf("other-%d", i))
				sm.Spec.ClusterName, sm.Spec.KillIfCommands, sm.Labels = "other", []string{"java"}, w.sm.Labels
				switch i {
				case 3:
					sm.Spec.KillIfCommands = nil
				case 4:
					sm.Labels = nil
				}
				w.Create(sm)
				if i < 5 {
					sm.Status.NodeRef = &v1alpha1.NodeReference{Name: sm.Name}
					w.Must(w.Client.Status().Update(t.Context(), sm))
				}
			}
			w.others(tc.cluster, tc.changed)
			w.programs("java", "idea")
			w.Must(w.reconcile())
			if tc.waits {
				w.wantAgent("java")
			} else {
				w.wantAgent("java", "idea")
			}
		})
	}
}

// TestARolloutDelaysOnlyPrograms covers a Node that has lost its label, and a ConfigMap that has lost its labels and so
// is not in the cache.
func TestARolloutDelaysOnlyPrograms(t *testing.T) {
	w := slow(t)
	w.others("lab", 1)
	w.programs("java", "idea")
	w.Edit(w.node, func() { delete(w.node.Labels, reclaim.AgentLabel) })
	cm := w.configMap()
	w.Read(cm)
	labels := cm.Labels
	w.Edit(cm, func() { cm.Labels = nil })
	w.Must(w.reconcile())
	w.wantAgent("java")
	if w.Read(cm); !maps.Equal(cm.Labels, labels) {
		t.Errorf("labels of the ConfigMap: %v, want %v", cm.Labels, labels)
	}
}

// TestAHoldEndsBesideMorePrograms turns a hold off while the agent waits for a program.
func TestAHoldEndsBesideMorePrograms(t *testing.T) {
	w := slow(t)
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaim.HoldKill })
	w.Must(w.reconcile())
	if cm := w.configMap(); !w.Read(cm) || !reclaim.TextHasHold(cm.Data[reclaim.ConfigMapKey]) {
		t.Fatal("the agent has no hold")
	}
	w.others("lab", 1)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands, w.sm.Spec.ReclaimHold = []string{"java", "idea"}, reclaim.HoldNone })
	w.Must(w.reconcile())
	w.wantAgent("java")
}

// TestWaitingForMoreProgramsIsReported has an agent wait for longer than a short interruption.
func TestWaitingForMoreProgramsIsReported(t *testing.T) {
	w := slow(t)
	w.programs("java", "idea")
	for range 20 { // Another agent always comes first.
		w.others("lab", 1)
		w.pass(time.Second)
	}
	c := conditions.Get(w.sm, v1alpha1.OwnerProtectedCondition)
	if c == nil || c.Reason != v1alpha1.ConfigurationPendingReason || !strings.Contains(c.Message, "one part of them after the other") {
		t.Errorf("its owner must know: %+v", c)
	}
}

func TestAdds(t *testing.T) {
	config := reclaim.ConfigFor([]string{"java", `a"b`, "tab\t"})
	config.Hold = reclaim.HoldFreeze
	old := config.Text()
	for _, tc := range []struct {
		programs []string
		adds     bool
	}{
		{nil, false},
		{[]string{"java"}, false},
		{[]string{"tab\t", `a"b`}, false},
		{[]string{"java", "idea"}, true},
		{[]string{"jav"}, true},
		{[]string{`a`}, true},
		{[]string{", "}, true},
		{[]string{"Freeze"}, true},
	} {
		if got := reclaim.ConfigFor(tc.programs).Adds(old); got != tc.adds {
			t.Errorf("%q: %t, want %t", tc.programs, got, tc.adds)
		}
	}
}

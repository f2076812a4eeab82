// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// newBurst brings up machines of a Cluster in which as many kill switches have just been turned
// on of other machines.
func newBurst(t *testing.T, machines, others int, change func(*v1alpha1.ScheduledMachine)) *crowd {
	t.Helper()
	c := newCrowd(t, machines, change)
	c.r.Roster.WipeGuard = true
	c.others(others)
	return c
}

// others turns on as many kill switches of other machines of the Cluster.
func (c *crowd) others(n int) {
	c.Helper()
	now := c.clock.Now()
	for i := range n {
		name := client.ObjectKey{Namespace: now.String(), Name: fmt.Sprint(i)}
		c.r.Roster.Tell(name, roster.Entry{Cluster: client.ObjectKeyFromObject(c.cluster), Machine: "another", Killed: true}, now)
		if !c.r.Roster.Kill(name, "another", now).Granted {
			c.Fatalf("%d are too many", i+1)
		}
	}
}

func killed(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }

// TestAKillSwitchOfABurstWaits has 9 kill switches be turned on elsewhere, and two here.
func TestAKillSwitchOfABurstWaits(t *testing.T) {
	c := newBurst(t, 2, 9, five)
	first, second := c.all[1], c.all[0]
	node := second.sm.Status.NodeRef
	first.edit(killed)
	second.edit(killed)
	first.reconcile()
	res := second.reconcile()
	if got := c.leaving(); !slices.Equal(got, []int{1}) || first.lane() != v1alpha1.ExemptLane {
		t.Fatalf("%v leave, in lane %s: the first go at once, and no planner is asked", got, first.lane())
	}
	until := c.clock.Now().Add(30 * time.Second)
	second.want(v1alpha1.PhaseActive, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.KillSwitchBurstReason)
	gate := conditions.Get(second.sm, v1alpha1.DepartureGatedCondition)
	if gate.Message != departure.ExplainBurst(until) || !conditions.IsTrue(second.sm, v1alpha1.ReadyCondition) || second.sm.Status.NodeRef.Name != node.Name {
		t.Errorf("it says %q, and is %+v", gate.Message, second.sm.Status)
	}
	if res.RequeueAfter != 30*time.Second {
		t.Errorf("it looks again in %s", res.RequeueAfter)
	}
	c.Writes = nil
	c.clock.SetTime(until.Add(-1))
	second.reconcile()
	if len(c.Writes) != 0 {
		t.Errorf("it wrote %v while it waited", c.Writes)
	}
	c.clock.SetTime(until)
	second.reconcile()
	if got := c.leaving(); len(got) != 2 || second.lane() != v1alpha1.ExemptLane {
		t.Errorf("after half a minute %v leave, though nobody has looked", got)
	}
	second.settle()
	second.want(v1alpha1.PhaseTerminated, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.TerminatingReason)
}

// TestABurstThatIsConfirmed has three live looks show the kill switch.
func TestABurstThatIsConfirmed(t *testing.T) {
	c := newBurst(t, 1, 10, five)
	c.edit(killed)
	for range 3 {
		c.reconcile()
		if got := c.leaving(); len(got) != 0 {
			t.Fatalf("%v leave too soon", got)
		}
		c.r.Roster.Confirm(client.ObjectKeyFromObject(c.cluster), map[client.ObjectKey]roster.Switch{client.ObjectKeyFromObject(c.sm): {Scheduled: c.sm.UID, Generation: c.sm.Generation, On: true}}, c.clock.Now())
		c.clock.SetTime(c.clock.Now().Add(10 * time.Second))
	}
	c.clock.SetTime(c.clock.Now().Add(-10 * time.Second))
	c.reconcile()
	if got := c.leaving(); len(got) != 1 {
		t.Error("it waits longer than for three looks")
	}
}

// TestAKillSwitchThatIsTurnedOffIsForgotten has somebody see the mistake.
func TestAKillSwitchThatIsTurnedOffIsForgotten(t *testing.T) {
	c := newBurst(t, 1, 10, five)
	c.edit(killed)
	c.reconcile()
	c.clock.SetTime(c.clock.Now().Add(20 * time.Second))
	c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = false })
	c.settle()
	c.clock.SetTime(c.clock.Now().Add(20 * time.Second))
	c.settle()
	if got := c.leaving(); len(got) != 0 || conditions.Has(c.sm, v1alpha1.DepartureGatedCondition) {
		t.Errorf("%v leave, conditions %v", got, c.sm.Status.Conditions)
	}
	c.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
}

// TestWhoIsOffStaysSoInABurst has a machine whose schedule is off wait: it goes on as it is.
func TestWhoIsOffStaysSoInABurst(t *testing.T) {
	c := newBurst(t, 1, 10, five)
	c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) })
	c.settle()
	c.edit(killed)
	c.reconcile()
	c.want(v1alpha1.PhaseDisabled, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.KillSwitchBurstReason)
}

// TestNobodyWaitsInABurstWhoMustNot has ten kill switches be turned on elsewhere just before.
func TestNobodyWaitsInABurstWhoMustNot(t *testing.T) {
	for name, leave := range map[string]func(*crowd){
		"OwnerAsked": func(c *crowd) {
			c.edit(func(sm *v1alpha1.ScheduledMachine) {
				request := v1alpha1.ReclaimRecord{Reason: "mine", RequestedAt: c.clock.Now().Format(time.RFC3339)}
				metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, request.String())
				killed(sm)
			})
			c.clock.SetTime(c.clock.Now().Add(time.Minute)) // Package reclaim could not.
			c.others(10)
		},
		"ClusterGoes": func(c *crowd) {
			c.hold(c.cluster)
			c.Must(c.Client.Delete(c.Context(), c.cluster))
			c.edit(killed)
		},
		"DepartureHasStarted": func(c *crowd) {
			c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20-22"} })
			c.clock.SetTime(c.clock.Now().Add(departure.Window))
			c.look()
			c.others(10)
			if got := c.leaving(); len(got) != 1 {
				c.Fatalf("%v leave", got)
			}
			c.edit(killed)
		},
		"WithoutMachine": func(c *crowd) {
			m, _ := c.machine()
			c.Must(c.Client.Delete(c.Context(), m))
			c.letGo(m)
			c.edit(killed)
		},
		"WithoutWipeGuard": func(c *crowd) {
			c.r.Roster.WipeGuard = false
			c.edit(killed)
		},
		"WithoutRoster": func(c *crowd) {
			c.r.Roster = nil
			c.edit(killed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newBurst(t, 1, 10, five)
			leave(c)
			c.reconcile()
			c.reconcile()
			if i, ok := c.infra(); ok && i.GetDeletionTimestamp().IsZero() || conditions.Has(c.sm, v1alpha1.DepartureGatedCondition) {
				t.Errorf("it is not removed at once: %+v", c.sm.Status)
			}
		})
	}
}

// TestADeletedObjectWaitsWithItsKillSwitch has it be deleted with its kill switch on: that is no
// way past the others.
func TestADeletedObjectWaitsWithItsKillSwitch(t *testing.T) {
	c := newBurst(t, 1, 10, five)
	c.edit(killed)
	c.Must(c.Client.Delete(c.Context(), c.sm))
	m, _ := c.machine()
	c.Must(c.Client.Delete(c.Context(), m))
	c.reconcile()
	c.want(v1alpha1.PhaseActive, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.KillSwitchBurstReason)
	if _, held := c.heldBy(); !held {
		t.Error("its Machine is let go")
	}
	c.clock.SetTime(c.clock.Now().Add(30 * time.Second))
	c.reconcile()
	if _, held := c.heldBy(); held {
		t.Error("it waits for ever")
	}
}

// heldBy reports whether our hook holds the Machine.
func (w *world) heldBy() (value string, held bool) {
	w.Helper()
	m, _ := w.machine()
	value, held = m.Annotations[v1alpha1.PreDrainHookAnnotation]
	return value, held
}

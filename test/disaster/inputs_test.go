// SPDX-License-Identifier: Apache-2.0

package disaster

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// An input is a disaster, and its undo.
type input struct {
	name string
	// shows is a condition reason or an Event reason that people must see. client-go publishes the first two Events of a
	// series, and none of the following 6 min: only the first disaster may wait for an Event.
	shows string
	// run runs the disaster, including an owner's request, until shows is visible.
	run func(*world)
	// undo is the repair by people; nil if none is needed.
	undo func(*world)
}

var inputs = []input{
	{name: "AllSchedulesAreClosed", shows: v1alpha1.WipeQuarantinedEvent, run: func(w *world) {
		w.mistake()
		w.patch(w.names, closed())
		w.sees(v1alpha1.WipeQuarantinedEvent)
		w.requestMachine(w.names)
		w.sees(v1alpha1.WipeConfirmedEvent)
		w.waitStarts(3 * w.atOnce())
	}, undo: reopen},
	{name: "AWipeIsUndoneBeforeItIsConfirmed", shows: v1alpha1.WipeQuarantineReason, run: func(w *world) {
		w.mistake()
		w.patch(w.names, closed())
		w.sees(v1alpha1.WipeQuarantineReason)
		w.requestMachine(w.names)
		from := time.Now()
		time.Sleep(5 * time.Second)
		if starts := w.startsAfter(from); len(starts) > 0 {
			w.Errorf("nobody has confirmed it: %v", starts)
		}
	}, undo: reopen},
	{name: "NoZoneCanBeLoaded", shows: v1alpha1.TimezoneUnavailableReason, run: func(w *world) {
		w.must(shared.WithoutWebhooks(w.step(), scheduledMachine("probe"), func() {
			w.mistake()
			w.patch(w.names, `{"spec":{"schedule":{"timezone":"Mars/Phobos"}}}`)
		}))
		w.sees(v1alpha1.TimezoneUnavailableReason)
		w.requestMachine(w.names)
		w.stays()
	}, undo: func(w *world) { w.patch(w.names, `{"spec":{"schedule":{"timezone":"UTC"}}}`) }},
	{name: "TheClusterIsPausedInTheMiddle", shows: clusterv1.PausedReason, run: func(w *world) {
		w.mistake()
		w.patch(w.half(), closed())
		w.waitStarts(w.atOnce())
		w.requestMachine(w.half())
		w.until(func() error { // Cluster API does not continue all deletions.
			for _, m := range w.machines {
				if !m.DeletionTimestamp.IsZero() {
					return fmt.Errorf("Machine %s is still there", m.Name)
				}
			}
			return nil
		})
		w.mistake()
		w.pause(true)
		w.sees(clusterv1.PausedReason)
		w.until(func() error {
			for _, sm := range w.scheduled {
				if c := conditions.Get(sm, clusterv1.PausedCondition); c == nil || c.Status != metav1.ConditionTrue {
					return fmt.Errorf("%s is not paused", sm.Name)
				}
			}
			return nil
		})
		w.stays()
	}, undo: func(w *world) {
		reopen(w)
		w.pause(false)
	}},
	{name: "TheManagersAreKilledTwice", shows: v1alpha1.BlastRadiusCapReason, run: func(w *world) {
		w.mistake()
		w.patch(w.half(), closed())
		for n := range 2 {
			w.waitStarts((n + 1) * w.atOnce())
			w.kill(w.replicas...)
			w.startReplicas()
			w.requestMachine(w.half())
		}
		w.sees(v1alpha1.WarmUpReason)
		w.waitStarts(4 * w.atOnce())
	}, undo: reopen},
	{name: "TheLeaderDies", shows: v1alpha1.BlastRadiusCapReason, run: func(w *world) {
		w.mistake()
		w.patch(w.half(), closed())
		w.waitStarts(w.atOnce())
		w.kill(w.waitLeader())
		w.startReplicas()
		w.requestMachine(w.half())
		w.sees(v1alpha1.WarmUpReason)
		w.waitStarts(3 * w.atOnce())
	}, undo: reopen},
	{name: "OurClockIsEightHoursAhead", shows: v1alpha1.ClockSuspectReason, run: func(w *world) {
		w.stopReplicas()
		shifted := w.shifted(8 * time.Hour)
		w.must(shared.WithoutWebhooks(w.step(), scheduledMachine("probe"), func() {
			w.mistake()
			w.patch(w.half(), closed())
		}))
		w.must(shifted.Start(w.step()))
		w.sees(v1alpha1.ClockSuspectReason)
		w.requestMachine(w.half())
		w.stays()
		w.must(shifted.Stop())
		w.startReplicas()
		w.waitStarts(2 * w.atOnce())
	}, undo: reopen},
	{name: "TheProviderCannotBeReadAnyMore", shows: v1alpha1.ReferencesUnreadableReason, run: func(w *world) {
		w.mistake()
		w.provider(false)
		w.kill(w.replicas...)
		w.startReplicas()
		w.patch(w.half(), closed())
		w.sees(v1alpha1.ReferencesUnreadableReason)
		w.requestMachine(w.half())
		w.waitStarts(2 * w.atOnce())
	}, undo: func(w *world) {
		w.provider(true)
		reopen(w)
	}},
	{name: "TheWorkloadClusterIsDown", shows: v1alpha1.BlastRadiusCapReason, run: func(w *world) {
		w.mistake()
		w.patch(w.half(), closed())
		w.waitStarts(w.atOnce())
		w.requestMachine(w.half()) // No request is possible during the outage: there is no Node to write to.
		w.must(lab.APIServer.Kill())
		w.waitStarts(3 * w.atOnce())
		w.sees(v1alpha1.NotConnectedReason) // The cluster cache takes most of a minute to detect the outage.
	}, undo: func(w *world) {
		w.must(lab.APIServer.Start(w.step()))
		reopen(w)
	}},
	{name: "AHealthCheckRemediatesAll", shows: v1alpha1.WipeQuarantineReason, run: func(w *world) {
		w.mistake()
		w.remediate(true)
		w.sees(v1alpha1.WipeQuarantineReason)
		w.requestMachine(w.names)
		w.waitStarts(3 * w.atOnce())
	}, undo: func(w *world) { w.remediate(false) }},
	{name: "SomebodyDeletesAllMachines", shows: v1alpha1.WipeQuarantineReason, run: func(w *world) {
		w.mistake()
		w.each(w.names, func(name string) error {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-machine"}}
			return client.IgnoreNotFound(w.Management.Delete(w.Context(), m))
		})
		w.sees(v1alpha1.WipeQuarantineReason)
		w.requestMachine(w.names)
		w.waitStarts(3 * w.atOnce())
		w.hurry()
		w.patch(w.names, `{"spec":{"killSwitch":false}}`)
	}},
	{name: "AllAreDeleted", shows: v1alpha1.WipeQuarantineReason, run: func(w *world) { w.deleted(metav1.DeletePropagationBackground) }},
	{name: "AllAreDeletedInTheForeground", shows: v1alpha1.WipeQuarantineReason, run: func(w *world) { w.deleted(metav1.DeletePropagationForeground) }},
}

// closed is a patch to a window that opens in twelve hours.
func closed() string {
	return fmt.Sprintf(`{"spec":{"schedule":{"hoursOfDay":["%d"]}}}`, (time.Now().UTC().Hour()+12)%24)
}

// reopen opens the windows of all machines.
func reopen(w *world) { w.patch(w.names, `{"spec":{"schedule":{"hoursOfDay":["0-23"]}}}`) }

// deleted deletes all ScheduledMachines. A deletion cannot be undone, so people make the waiting machines leave at
// once, and apply all ScheduledMachines again.
func (w *world) deleted(how metav1.DeletionPropagation) {
	w.Helper()
	w.mistake()
	w.each(w.names, func(name string) error {
		return client.IgnoreNotFound(w.Management.Delete(w.Context(), scheduledMachine(name), client.PropagationPolicy(how)))
	})
	w.sees(v1alpha1.WipeQuarantineReason)
	w.requestMachine(w.names)
	w.waitStarts(3 * w.atOnce())
	w.hurry()
	w.until(func() error {
		if n := len(w.scheduled); n > 0 {
			return fmt.Errorf("%d ScheduledMachines are still there", n)
		}
		return nil
	})
	w.apply()
}

// hurry makes all remaining machines leave, by their kill switches, which are exempt.
func (w *world) hurry() {
	w.Helper()
	w.patch(w.names, `{"spec":{"killSwitch":true}}`)
	w.until(func() error {
		for _, m := range w.machines {
			if _, left := w.starts[m.UID]; !left {
				return fmt.Errorf("Machine %s has not started to leave", m.Name)
			}
		}
		return nil
	})
}

// pause pauses or unpauses the Cluster.
func (w *world) pause(paused bool) {
	w.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	w.must(w.Edit(c, func() { c.Spec.Paused = &paused }))
}

// provider grants or revokes the manager's permissions for the provider's objects.
func (w *world) provider(allowed bool) {
	w.Helper()
	shipped, err := system.ManagerRole()
	w.must(err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: shipped.Name}}
	w.must(w.Edit(role, func() {
		role.Rules = shipped.Rules
		for i := range role.Rules {
			if rule := &role.Rules[i]; !allowed {
				rule.APIGroups = slices.DeleteFunc(rule.APIGroups, func(group string) bool { return group == infrav1.GroupVersion.Group })
			}
		}
	}))
}

// remediate makes Cluster API's health check report all machines as broken, or as healthy.
func (w *world) remediate(broken bool) {
	w.Helper()
	w.each(w.names, func(name string) error {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-machine"}}
		if err := w.Management.Get(w.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := m.DeepCopy()
		if broken {
			conditions.Set(m, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: "WaitingForRemediation"})
		} else {
			conditions.Delete(m, clusterv1.MachineOwnerRemediatedCondition)
		}
		return client.IgnoreNotFound(w.Management.Status().Patch(w.Context(), m, client.MergeFrom(before)))
	})
}

// shifted is a manager with a wrong clock, not started yet.
func (w *world) shifted(ahead time.Duration) *plane.Process {
	w.Helper()
	path := filepath.Join(dir, "shifted")
	build := exec.CommandContext(w.step(), "go", "build", "-o", path, "../bench/shifted")
	if out, err := build.CombinedOutput(); err != nil {
		w.Fatalf("%v: %s", err, out)
	}
	log := filepath.Join(dir, "shifted.jsonl")
	w.others = append(w.others, log)
	p, err := shared.NewAddon(w.step(), plane.AddonOptions{
		Name: "5spot-shifted", Path: path, ServiceAccount: system.ManagerAccount,
		Args: append(slices.Clone(election), "--audit-log="+log, "--clock-offset="+ahead.String()),
	})
	w.must(err)
	return p
}

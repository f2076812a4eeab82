// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// patience is long: Cluster API and the provider back off while they cannot read.
	patience = 5 * time.Minute
	// fleetSize and few are the sizes of a fleet with and without -short.
	fleetSize, few = 50, 8
)

// world is the Cluster of the test.
type world struct {
	*testing.T
	*specs.Cluster
	machines []*v1alpha1.ScheduledMachine
	// uids are the UIDs of all children.
	uids map[client.ObjectKey]types.UID
}

// TestUnknownIsNotAbsent kills and restarts the manager in each outage. The machines continue to run. Meanwhile one
// owner requests a machine, and one window closes. After the outage normal operation continues.
func TestUnknownIsNotAbsent(t *testing.T) {
	w := newWorld(t)
	for i := range testenv.Shorter(fleetSize, few) {
		w.machines = append(w.machines, w.Start(system.ScheduledMachine(lab, fmt.Sprintf("box%d", i), infrav1.PlaneMachineSpec{})))
	}
	for _, sm := range w.machines {
		w.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	}
	for name, o := range outages {
		if !t.Run(name, func(t *testing.T) {
			if name != "ConversionWebhookDead" {
				system.Long(t)
			}
			now := newWorld(t)
			now.machines = w.machines
			now.survive(name, o)
		}) {
			t.FailNow() // The next outage would start from a broken fleet.
		}
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{T: t, Cluster: &specs.Cluster{
		T: t, Management: shared.Management.Client, Workload: lab.Client, Namespace: "lab", Patience: patience,
	}}
}

// survive runs one outage.
func (w *world) survive(name string, o outage) {
	w.Helper()
	asked, closed, stay := w.machines[0], w.machines[1], w.machines[2:]
	w.remember()
	node := w.Node(asked)

	o.begin(w)
	w.must(shared.Manager.Kill())
	w.must(shared.Manager.Start(w.step()))
	for _, sm := range w.machines {
		w.must(w.Edit(sm, func() { sm.Spec.MachineTemplate.Labels = map[string]string{"example.org/outage": name} }))
	}
	for _, sm := range w.machines { // The new manager reconciles each machine.
		w.wantSeen(sm, o)
	}
	w.AskBack(node, "java")
	w.SetSchedule(closed, specs.Closed())
	w.wantLeaving(asked, v1alpha1.PhaseEmergencyRemove)
	w.wantLeaving(closed, v1alpha1.PhaseShuttingDown)
	for _, sm := range stay {
		w.wantRunning(sm)
	}

	o.end(w)
	w.WaitPhase(asked, v1alpha1.PhaseDisabled, metav1.ConditionTrue)
	w.WaitPhase(closed, v1alpha1.PhaseInactive, metav1.ConditionTrue)
	for _, sm := range stay {
		w.WaitCondition(sm, metav1.Condition{Type: v1alpha1.ReferencesValidCondition, Status: metav1.ConditionTrue})
		w.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
		w.wantUntouched(sm)
	}
	w.SetSchedule(asked, specs.Always())
	w.SetSchedule(closed, specs.Always())
	for _, sm := range []*v1alpha1.ScheduledMachine{asked, closed} { // Both are lent again.
		w.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	}
}

// remember records the existing objects.
func (w *world) remember() {
	w.Helper()
	w.uids = map[client.ObjectKey]types.UID{}
	for _, sm := range w.machines {
		for _, child := range children(sm) {
			w.must(w.Management.Get(w.step(), client.ObjectKeyFromObject(child), child))
			w.uids[client.ObjectKeyFromObject(child)] = child.GetUID()
		}
	}
}

// wantSeen waits until the manager has reconciled a running machine, and reports that it cannot read it.
func (w *world) wantSeen(sm *v1alpha1.ScheduledMachine, o outage) {
	w.Helper()
	want := metav1.Condition{Type: v1alpha1.ReferencesValidCondition, Status: metav1.ConditionTrue}
	var parts []string
	if o.blind {
		want.Status, want.Reason = metav1.ConditionUnknown, v1alpha1.ReferencesUnreadableReason
		parts = []string{"spec.infrastructureSpec: ", "PlaneMachine.infrastructure.cluster.x-k8s.io", o.says}
	}
	w.WaitFor(sm, func() error {
		if sm.Status.ObservedGeneration != sm.Generation {
			return errors.New("nobody has looked at it")
		}
		return nil
	})
	w.WaitCondition(sm, want, parts...)
	if sm.Status.Phase != v1alpha1.PhaseActive {
		w.Errorf("%s runs, and is %s: %+v", sm.Name, sm.Status.Phase, sm.Status.Conditions)
	}
}

// wantLeaving waits until a Machine is being deleted: neither an owner's request nor a window end waits for a provider.
func (w *world) wantLeaving(sm *v1alpha1.ScheduledMachine, phase v1alpha1.Phase) {
	w.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name + "-machine"}}
	w.must(plane.Until(w.step(), func(ctx context.Context) error {
		err := w.Management.Get(ctx, client.ObjectKeyFromObject(m), m)
		if err == nil && m.DeletionTimestamp.IsZero() {
			return errors.New("the Machine is not being deleted")
		}
		return client.IgnoreNotFound(err) // It may be gone already.
	}))
	w.WaitFor(sm, func() error {
		if sm.Status.Phase != phase && sm.Status.MachineRef != nil {
			return fmt.Errorf("phase is %s, not %s: %s", sm.Status.Phase, phase, conditions.GetMessage(sm, v1alpha1.ReadyCondition))
		}
		return nil
	})
}

// wantRunning checks that a Machine still runs, as far as it can be read.
func (w *world) wantRunning(sm *v1alpha1.ScheduledMachine) {
	w.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name + "-machine"}}
	w.must(w.Management.Get(w.step(), client.ObjectKeyFromObject(m), m))
	if !m.DeletionTimestamp.IsZero() || m.UID != w.uids[client.ObjectKeyFromObject(m)] {
		w.Errorf("Machine %s was taken away", m.Name)
	}
}

// wantUntouched checks that no child was deleted: a deletion cannot be undone.
func (w *world) wantUntouched(sm *v1alpha1.ScheduledMachine) {
	w.Helper()
	for _, child := range children(sm) {
		w.must(w.Management.Get(w.step(), client.ObjectKeyFromObject(child), child))
		if !child.GetDeletionTimestamp().IsZero() || child.GetUID() != w.uids[client.ObjectKeyFromObject(child)] {
			w.Errorf("%s %s was taken away", child.GetObjectKind().GroupVersionKind().Kind, child.GetName())
		}
	}
}

// step is a context for one step.
func (w *world) step() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) until(cond func() error) {
	w.Helper()
	w.must(plane.Until(w.step(), func(context.Context) error { return cond() }))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

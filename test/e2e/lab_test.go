// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// patience bounds one step. It is long, because a late step on a busy machine is no bug; a deferred drain of
	// Cluster API takes 20 s.
	patience = 5 * time.Minute
	// longPatience bounds a wait for several steps of Cluster API.
	longPatience = 6 * time.Minute
)

// long skips a test with -short.
func long(t *testing.T) {
	t.Helper()
	system.Long(t)
}

// A lab is the namespace and the Cluster of one test. All Clusters share one control plane, so names of Nodes and
// ScheduledMachines must be unique among all tests.
type lab struct {
	*plane.Workload

	t *testing.T
}

// newLab creates a namespace with a Cluster that Cluster API is connected to.
func newLab(t *testing.T, name string) *lab {
	t.Helper()
	l := newNamespace(t, name)
	l.newCluster()
	return l
}

// newNamespace creates a namespace without a Cluster.
func newNamespace(t *testing.T, name string) *lab {
	t.Helper()
	l := &lab{t: t, Workload: &plane.Workload{Cluster: workload, Key: client.ObjectKey{Namespace: name, Name: name}}}
	ctx := timeout(t, patience)
	l.must(shared.Management.EnsureNamespace(ctx, name))
	l.must(workload.EnsureNamespace(ctx, name))
	t.Cleanup(func() { l.explain() })
	return l
}

func (l *lab) newCluster() {
	l.t.Helper()
	w, err := shared.Manage(timeout(l.t, patience), workload, plane.WorkloadOptions{
		Namespace: l.Key.Namespace, Name: l.Key.Name, NodeLeaseSeconds: 400,
	})
	l.must(err)
	l.Workload = w
}

// newWorkload creates a Cluster with its own control plane instead.
func (l *lab) newWorkload(o plane.WorkloadOptions) {
	l.t.Helper()
	ctx := timeout(l.t, patience)
	o.Namespace, o.Name, o.AuditBodies = l.Key.Namespace, l.Key.Name, system.JudgedInWorkload
	w, err := shared.NewWorkload(ctx, o)
	l.must(err)
	l.Workload = w
	l.must(w.EnsureNamespace(ctx, l.Key.Namespace))
}

// scheduledMachine returns a ScheduledMachine with a window that is always open, not created yet. Its name begins with
// the lab's name.
func (l *lab) scheduledMachine(name string, infra infrav1.PlaneMachineSpec) *v1alpha1.ScheduledMachine {
	return system.ScheduledMachine(l.Workload, l.Key.Name+"-"+name, infra)
}

// running creates a ScheduledMachine and waits until its machine runs.
func (l *lab) running(name string, mutate func(*v1alpha1.ScheduledMachine), infra ...infrav1.PlaneMachineSpec) *v1alpha1.ScheduledMachine {
	l.t.Helper()
	sm := l.started(name, mutate, infra...)
	l.waitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	return sm
}

// started creates a ScheduledMachine and does not wait.
func (l *lab) started(name string, mutate func(*v1alpha1.ScheduledMachine), infra ...infrav1.PlaneMachineSpec) *v1alpha1.ScheduledMachine {
	l.t.Helper()
	var spec infrav1.PlaneMachineSpec
	if len(infra) > 0 {
		spec = infra[0]
	}
	sm := l.scheduledMachine(name, spec)
	if mutate != nil {
		mutate(sm)
	}
	l.create(sm)
	return sm
}

func (l *lab) create(obj client.Object) {
	l.t.Helper()
	if err := shared.Management.Client.Create(timeout(l.t, patience), obj); err != nil {
		l.t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
	}
}

// edit changes an object as kubectl patch would.
func (l *lab) edit(obj client.Object, mutate func()) {
	l.t.Helper()
	l.must(l.tryEdit(obj, mutate))
}

func (l *lab) tryEdit(obj client.Object, mutate func()) error { return l.specs().Edit(obj, mutate) }

func (l *lab) delete(obj client.Object, opts ...client.DeleteOption) {
	l.t.Helper()
	l.must(shared.Management.Client.Delete(timeout(l.t, patience), obj, opts...))
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// node returns the Node of a ScheduledMachine, by its status.
func (l *lab) node(sm *v1alpha1.ScheduledMachine) *corev1.Node {
	l.t.Helper()
	return l.specs().Node(sm)
}

// asShips replaces the shared manager by one with default rails until the test ends, so its test is not parallel. An
// edit of sm shows that it leads. At the end of all tests the judge also reads its audit log.
func (l *lab) asShips(sm *v1alpha1.ScheduledMachine) *plane.Process {
	l.t.Helper()
	l.must(shared.Manager.Stop())
	var manager *plane.Process
	var led time.Time
	l.t.Cleanup(func() { // The manager has ended.
		if !led.IsZero() {
			shipped, killed = append(shipped, judge.Span{From: led, To: time.Now()}), append(killed, manager.Killed()...)
		}
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l.must(shared.Manager.Start(ctx))
	})
	path := filepath.Join(shared.Dir, l.Key.Name+".jsonl")
	manager = l.startProgram("5spot-"+l.Key.Name, shared.Program("manager"), "--audit-log="+path)
	decisions = append(decisions, path)
	l.withoutWebhooks(func() {
		l.edit(sm, func() {
			sm.Spec.MachineTemplate.Labels = map[string]string{"example.org/seen-by": l.Key.Name}
		})
		l.waitFor(sm, func() error {
			if sm.Status.ObservedGeneration != sm.Generation {
				return errors.New("nobody has seen the new label")
			}
			return nil
		})
	})
	led = time.Now()
	return manager
}

// specs returns the lab for the specs that also run on kind.
func (l *lab) specs() *specs.Cluster {
	return &specs.Cluster{
		T: l.t, Management: shared.Management.Client, Workload: l.Client, Namespace: l.Key.Namespace,
		NewScheduledMachine: func(name string) *v1alpha1.ScheduledMachine {
			return l.scheduledMachine(name, infrav1.PlaneMachineSpec{})
		},
		Image:    "work:1", // simulated Nodes do not pull images
		Patience: patience,
	}
}

// timeout is a context for one step of a test.
func timeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

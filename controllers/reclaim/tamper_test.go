// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// fleet is a machine with an owner's request, optionally another machine without one, and both controllers that remove
// machines.
type fleet struct {
	*world
	// another is nil if there is none.
	another   *v1alpha1.ScheduledMachine
	scheduled *scheduledmachine.Reconciler
}

func noWatch(client.Object) error { return nil }

func newFleet(t *testing.T, two bool) *fleet {
	t.Helper()
	w := newWorld(t)
	f := &fleet{world: w}
	if two {
		f.another = testenv.ScheduledMachine(w.sm.Namespace, "another")
		w.Create(f.another)
	}
	c := w.Recorded(interceptor.Funcs{})
	f.scheduled = &scheduledmachine.Reconciler{
		Clock: w.clock, Live: c, Actuate: actuate.New(c), Recorder: w.recorder, Watch: noWatch, Hooks: w.hooks,
		Children: children.Reader{Cached: c, Live: c}, Backoff: wake.Backoff(), ReclaimTracker: w.tracker,
		Reader:       w.Indexed(c, scheduledmachine.HostIndex, scheduledmachine.HostKeys),
		ClusterCache: clustercache.NewFakeClusterCache(c, client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}),
	}
	f.settle()
	if f.Read(f.sm); len(f.sm.Finalizers) == 0 {
		t.Fatal("the ScheduledMachine is not served")
	}
	return f
}

// settle runs both controllers until neither writes.
func (f *fleet) settle() {
	f.Helper()
	f.until(func() {
		f.r = nil
		for _, sm := range []*v1alpha1.ScheduledMachine{f.sm, f.another} {
			if sm == nil {
				continue
			}
			_, err := f.scheduled.Reconcile(f.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)})
			f.Must(err)
		}
		f.events() // The recorder must not be full.
	})
}

// marked returns an object that has marks.
func (f *fleet) marked(on string) client.Object {
	switch on {
	case testenv.OnMachine:
		return f.machine()
	case testenv.OnInfrastructure:
		return f.infra()
	case testenv.OnBootstrap:
		b := f.built(children.BootstrapOf(f.sm))
		f.Read(b)
		return b
	case onNode:
		f.Read(f.node)
		return f.node
	default:
		f.Read(f.sm)
		return f.sm
	}
}

const onNode = "Node"

// marksOfAnEmergency returns the additional marks during a reclaim.
func marksOfAnEmergency() map[string]testenv.Mark {
	all := map[string]testenv.Mark{
		"TaintOff": {On: onNode, Tamper: func(o client.Object) { o.(*corev1.Node).Spec.Taints = nil }},
	}
	for name, of := range map[string]struct{ on, key string }{
		"Record":          {testenv.OnScheduledMachine, v1alpha1.EmergencyReclaimAnnotation},
		"Times":           {testenv.OnScheduledMachine, v1alpha1.ReclaimTimesAnnotation},
		"Departure":       {testenv.OnMachine, v1alpha1.DepartureAnnotation},
		"SkipDrain":       {testenv.OnMachine, clusterv1.ExcludeNodeDrainingAnnotation},
		"SkipVolumes":     {testenv.OnMachine, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation},
		"SkipRemediation": {testenv.OnMachine, clusterv1.MachineSkipRemediationAnnotation},
		"Request":         {onNode, reclaimapi.RequestedAnnotation},
		"Reason":          {onNode, reclaimapi.ReasonAnnotation},
		"RequestedAt":     {onNode, reclaimapi.RequestedAtAnnotation},
	} {
		all[name+"Off"] = testenv.Mark{On: of.on, Tamper: testenv.Annotation(of.key, "")}
		all[name+"Changed"] = testenv.Mark{On: of.on, Tamper: testenv.Annotation(of.key, "nonsense")}
	}
	return all
}

// stages has the phases in which the test tampers, with the change that leads a running machine there.
var stages = map[string]func(*fleet){
	"Active":          func(*fleet) {},
	"Disabled":        func(f *fleet) { f.Edit(f.sm, func() { f.sm.Spec.Schedule.Enabled = new(false) }) },
	"ShuttingDown":    func(f *fleet) { f.Edit(f.sm, func() { f.sm.Spec.Schedule.DaysOfWeek = nil }) },
	"Terminated":      func(f *fleet) { f.Edit(f.sm, func() { f.sm.Spec.KillSwitch = true }) },
	"Deleting":        func(f *fleet) { f.Must(f.Client.Delete(f.Context(), f.sm)) },
	"EmergencyRemove": func(f *fleet) { f.annotate("true") },
}

// reclaimed returns the observed states of a machine that is tampered with in a phase, and that its owner then
// requests.
func reclaimed(t *testing.T, enter func(*fleet), tamper func(*fleet), two bool) []string {
	t.Helper()
	f := newFleet(t, two)
	enter(f)
	f.settle()
	tamper(f)
	f.Read(f.node)
	f.annotate("true")
	f.settle()
	seen := []string{f.seen()}
	f.clusterAPI()
	f.settle()
	if two {
		f.wantAnotherUntouched()
	}
	return append(seen, f.seen())
}

// clusterAPI plays the part of Cluster API and the provider for a Machine that leaves.
func (f *fleet) clusterAPI() {
	f.Helper()
	if i := f.infra(); i != nil {
		f.release(i)
	}
	f.Must(client.IgnoreNotFound(f.Client.Delete(f.Context(), f.marked(testenv.OnBootstrap))))
	f.Must(client.IgnoreNotFound(f.Client.Delete(f.Context(), f.node)))
	if m := f.machine(); m != nil {
		f.release(m)
	}
}

// seen returns the state of the machine and its records.
func (f *fleet) seen() string {
	f.Helper()
	state := func(obj client.Object) string {
		switch {
		case !f.Read(obj):
			return "gone"
		case obj.GetDeletionTimestamp().IsZero():
			return "there"
		default:
			return "leaving"
		}
	}
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = f.sm.Namespace, children.NamesOf(f.sm.Name).Machine
	s := fmt.Sprintf("machine=%s infrastructure=%s bootstrap=%s node=%s", state(m),
		state(f.built(children.InfrastructureOf(f.sm))), state(f.built(children.BootstrapOf(f.sm))), state(f.node))
	expedited := (&children.Set{Machine: m}).Expedited() || m.UID == ""
	kept := &v1alpha1.ReclaimedMachineList{}
	f.Must(f.Client.List(f.Context(), kept, client.InNamespace(f.sm.Namespace)))
	s += fmt.Sprintf(" expedited=%t tainted=%t kept=%d", expedited, f.tainted(reclaimapi.NodeTaint), len(kept.Items))
	if !f.Read(f.sm) {
		return s + " released"
	}
	_, served := f.sm.ServedReclaim()
	return s + fmt.Sprintf(" asked=%t served=%t enabled=%t %s", f.sm.BeingReclaimed(), served, f.sm.ScheduleEnabled(), f.sm.Status.Phase)
}

// wantAnotherUntouched checks that the other machine is unchanged.
func (f *fleet) wantAnotherUntouched() {
	f.Helper()
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = f.another.Namespace, children.NamesOf(f.another.Name).Machine
	for _, obj := range []client.Object{f.another, m, f.built(children.InfrastructureOf(f.another)), f.built(children.BootstrapOf(f.another))} {
		if !f.Read(obj) || !obj.GetDeletionTimestamp().IsZero() {
			f.Errorf("%T %s is lost, too", obj, obj.GetName())
		}
	}
	if !f.another.ScheduleEnabled() || len(f.another.Annotations) != 0 {
		f.Errorf("it was not requested: %+v", f.another)
	}
}

func TestNoMarkOfOursKeepsAMachineFromItsOwner(t *testing.T) {
	t.Parallel()
	for phase, enter := range stages {
		want := reclaimed(t, enter, func(*fleet) {}, false)
		marks := testenv.Marks()
		if phase == "EmergencyRemove" {
			maps.Copy(marks, marksOfAnEmergency())
		}
		for name, mark := range testenv.Sample(marks) {
			if phase == "Deleting" && name == "FinalizerOff" {
				continue // The object is deleted then, and its machine continues to run: docs/threat-model.md.
			}
			t.Run(phase+"/"+name, func(t *testing.T) {
				t.Parallel()
				got := reclaimed(t, enter, func(f *fleet) {
					obj := f.marked(mark.On)
					before := obj.DeepCopyObject().(client.Object)
					mark.Tamper(obj)
					f.Must(f.Client.Patch(f.Context(), obj, client.MergeFrom(before)))
					mine := []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(f.sm)}}
					if woken := wake.OfChild(t.Context(), f.machine()); !slices.Equal(woken, mine) {
						t.Errorf("what happens to the Machine wakes %v", woken)
					}
					f.settle()
				}, strings.HasSuffix(name, "OfAnother"))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-without, +with a client that tampers:\n%s", diff)
				}
			})
		}
	}
}

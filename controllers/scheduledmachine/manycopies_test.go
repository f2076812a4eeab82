// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// copies is a cache with the index of hosts and many ScheduledMachines of one host.
type copies struct {
	client.Reader

	items []v1alpha1.ScheduledMachine
	index map[string][]v1alpha1.ScheduledMachine
	// listed is the number of objects that lists returned.
	listed *int
}

// newCopies returns n ScheduledMachines that name one host, created one second apart.
func newCopies(n, size int, change func(*v1alpha1.ScheduledMachine)) copies {
	c := copies{index: map[string][]v1alpha1.ScheduledMachine{}, listed: new(int)}
	spec := on(`{"address":"192.0.2.42","files":[` + strings.Repeat(`"x",`, size/4) + `"x"]}`)
	for i := range n {
		sm := testenv.ScheduledMachine("farm", fmt.Sprintf("box%04d", i))
		spec(sm)
		sm.UID, sm.ResourceVersion, sm.Generation = types.UID(sm.Name), "1", 1
		sm.Status.Phase, sm.Status.ObservedGeneration = v1alpha1.PhasePending, 1
		sm.Status.Host = hostNamed(sm, monday.Add(time.Duration(i)*time.Second))
		if change != nil {
			change(sm)
		}
		c.items = append(c.items, *sm)
		for _, key := range scheduledmachine.HostKeys(sm) {
			c.index[key] = append(c.index[key], *sm)
		}
	}
	return c
}

// List lists by the index.
func (c copies) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	named, ok := list.(*v1alpha1.ScheduledMachineList)
	if !ok {
		return nil // There are no ReclaimedMachines.
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	key, _ := o.FieldSelector.RequiresExactMatch(scheduledmachine.HostIndex)
	found := c.index[key]
	if o.Limit > 0 && int(o.Limit) < len(found) {
		found = found[:o.Limit]
	}
	*c.listed += len(found)
	named.Items = slices.Clone(found)
	return nil
}

func (c copies) reconciler() *scheduledmachine.Reconciler {
	return &scheduledmachine.Reconciler{Reader: c, Clock: clocktesting.NewFakePassiveClock(monday)}
}

// woken returns the names of the ScheduledMachines that a change enqueues; for copies their number.
func woken(t *testing.T, r *scheduledmachine.Reconciler, sm *v1alpha1.ScheduledMachine) []string {
	t.Helper()
	var names []string
	for _, req := range r.OfHost(t.Context(), sm) {
		names = append(names, strings.TrimPrefix(req.Name, "box"))
	}
	return names
}

// TestAChangeOfOneOfAThousandWakesFew uses a thousand copies of one manifest.
func TestAChangeOfOneOfAThousandWakesFew(t *testing.T) {
	c := newCopies(1000, 10, nil)
	r := c.reconciler()
	asked := c.items[999]
	asked.ResourceVersion = "2"
	asked.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"}
	for name, tc := range map[string]struct {
		sm    *v1alpha1.ScheduledMachine
		want  int
		first string
	}{
		"TheFirst":        {&c.items[0], 8, "0001"},
		"OneInTheMiddle":  {&c.items[500], 8, "0000"},
		"TheLast":         {&c.items[999], 1, "0000"},
		"AnOwnerWhoAsked": {&asked, 64, "0000"},
	} {
		if got := woken(t, r, tc.sm); len(got) != tc.want || got[0] != tc.first {
			t.Errorf("%s: a change wakes %d, want %d, first %v", name, len(got), tc.want, got[0])
		}
	}
}

// TestEachHostNameEnqueuesItsMachines uses a ScheduledMachine that is first by another name of the host. The ones that
// share this name must still be enqueued.
func TestEachHostNameEnqueuesItsMachines(t *testing.T) {
	c := newCopies(20, 10, nil)
	leaves, waits := c.items[0], testenv.ScheduledMachine("farm", "waits")
	on(`{"address":"192.0.2.42","nodeName":"desk"}`)(&leaves)
	on(`{"address":"192.0.2.77","nodeName":"desk"}`)(waits)
	leaves.ResourceVersion = "2"
	waits.CreationTimestamp = metav1.NewTime(monday.Add(time.Hour))
	for _, key := range scheduledmachine.HostKeys(waits) {
		c.index[key] = append(c.index[key], *waits)
	}
	if got := woken(t, c.reconciler(), &leaves); !slices.Contains(got, "waits") || len(got) > 9 {
		t.Errorf("woken: %v", got)
	}
}

// TestAnUnobservedEditKeepsThePlace edits the first of three copies. Its status does not show the edit yet. A change of
// the last one enqueues the first, and all that come after it.
func TestAnUnobservedEditKeepsThePlace(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.ScheduledMachine)
		want []string
	}{
		"OfItsSchedule": {inTheEvening, []string{"0000"}},
		"OfItsHost": {func(sm *v1alpha1.ScheduledMachine) {
			sm.Status.Host.Names[0].Value = "192.0.2.77:22" // The status has the host from before the edit.
		}, []string{"0001", "0000"}},
	} {
		c := newCopies(3, 10, func(sm *v1alpha1.ScheduledMachine) {
			if sm.Name == "box0000" {
				sm.Generation = 2
				tc.edit(sm)
			}
		})
		if got := woken(t, c.reconciler(), &c.items[2]); !slices.Equal(got, tc.want) {
			t.Errorf("%s: a change of the last one enqueues %v, want %v", name, got, tc.want)
		}
	}
}

// TestImagesAreNotListed checks that lists by machine ID are bounded.
func TestImagesAreNotListed(t *testing.T) {
	image := func(sm *v1alpha1.ScheduledMachine) {
		on(`{}`)(sm)
		sm.Status.Host = &v1alpha1.HostStatus{MachineNames: []v1alpha1.HostName{
			{Kind: "nodeName", Value: sm.Name}, {Kind: "machineID", Value: "0123456789abcdef0123456789abcdef"},
		}}
	}
	for n, want := range map[int]int{3: 2, 8: 7, 9: 0, 1000: 0} {
		c := newCopies(n, 10, image)
		if got := woken(t, c.reconciler(), &c.items[0]); len(got) != want {
			t.Errorf("%d of one image: a change wakes %d, want %d", n, len(got), want)
		}
		if *c.listed > 10 { // The Node's name lists one.
			t.Errorf("%d of one image: %d were listed", n, *c.listed)
		}
	}
}

// BenchmarkAChangeOfOneOfMany measures one write to the first of many ScheduledMachines, with the reconciles that it
// enqueues.
func BenchmarkAChangeOfOneOfMany(b *testing.B) {
	for _, size := range []struct{ n, bytes int }{{3, 10}, {1000, 10}, {10_000, 10}, {200, 500_000}, {100, 1_000_000}} {
		b.Run(fmt.Sprintf("%dx%dB", size.n, size.bytes), func(b *testing.B) {
			c := newCopies(size.n, size.bytes, nil)
			r := c.reconciler()
			if err := r.Look(b.Context(), &c.items[0]); err != nil { // As after a start.
				b.Fatal(err)
			}
			version := 1
			for b.Loop() {
				version++
				changed := c.items[0]
				changed.ResourceVersion = fmt.Sprint(version)
				before := c.items[0]
				scheduledmachine.HostChanges().Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &changed})
				requests := r.OfHost(b.Context(), &changed)
				for range requests {
					if err := r.Look(b.Context(), &c.items[1]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(requests)), "woken")
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// A neighbour is another Cluster of the fleet. Its tenant replaces machines without end: each one that leaves is created
// again and has to leave at once.
type neighbour struct {
	w            *world
	key          client.ObjectKey
	made, starts int
}

func (w *world) newNeighbour(machines int) *neighbour {
	w.Helper()
	n := &neighbour{w: w, key: client.ObjectKey{Namespace: "noise", Name: "noisy"}}
	w.must(w.Create(w.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: n.key.Namespace, Name: n.key.Name}}))
	for range machines {
		n.add()
	}
	return n
}

func (n *neighbour) add() {
	n.w.Helper()
	name, now := fmt.Sprintf("n-%05d", n.made), n.w.clock.Now()
	n.made++
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: n.key.Namespace, Name: name, UID: uid("neighbour", n.made), Generation: 1}}
	sm.Spec.ClusterName = n.key.Name
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: n.key.Namespace, Name: children.NamesOf(name).Machine, UID: uid("neighbour's machine", n.made),
		Annotations: map[string]string{v1alpha1.PreDrainHookAnnotation: ""}, OwnerReferences: ownedBy(name, sm.UID),
	}}
	m.Spec.ClusterName = n.key.Name
	children.Request(m, v1alpha1.Departure{
		Lane: v1alpha1.UnscheduledLane, Reason: v1alpha1.MachineReplaced, RequestedAt: v1alpha1.DepartureTime(now), ActionID: "x",
	}, now)
	n.w.must(n.w.Create(n.w.Context(), sm))
	n.w.must(n.w.Create(n.w.Context(), m))
}

// plan runs the planner of the neighbour, and replaces the machines that leave.
func (n *neighbour) plan() {
	n.w.Helper()
	_, err := n.w.r.Reconcile(n.w.Context(), ctrl.Request{NamespacedName: n.key})
	n.w.must(err)
	list := &clusterv1.MachineList{}
	n.w.must(n.w.List(n.w.Context(), list, client.InNamespace(n.key.Namespace)))
	for i := len(list.Items); i < 20; i++ {
		n.starts++
		n.add()
	}
}

// TestNoClusterStarvesAnother has a Cluster whose events always start its planner before the timer of another Cluster.
// Three machines of the other Cluster have to leave, and the fleet has one start in ten seconds.
func TestNoClusterStarvesAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		locked    map[string]bool
		leave     int
		neighbour int
	}{
		"OldestLeavesFirst": {nil, 3, 5},
		// A Cluster whose machines cannot leave takes some starts, and not all.
		"NoneCanLeave": {map[string]bool{machineOf(0): true, machineOf(1): true, machineOf(2): true}, 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 10)
			w.warm()
			w.leaves(v1alpha1.UnscheduledLane, 0, 1, 2)
			w.locked = tc.locked
			w.after(departurecap.MaxWait)
			n := w.newNeighbour(20)
			n.plan()
			w.after(lease)
			due := w.clock.Now()
			for end := due.Add(2 * time.Minute); w.clock.Now().Before(end); w.after(time.Second) {
				n.plan()
				if !w.clock.Now().Before(due) {
					due = w.clock.Now().Add(w.plan())
				}
			}
			left := 0
			for i := range 3 {
				if !w.machine(i).DeletionTimestamp.IsZero() {
					left++
				}
			}
			if left != tc.leave || n.starts < tc.neighbour {
				t.Errorf("%d of three machines have left, and %d of the other Cluster", left, n.starts)
			}
		})
	}
}

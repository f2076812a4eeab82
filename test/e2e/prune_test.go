// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAPruneWaitsForTheRails prunes all machines of a Cluster, as Argo CD does by default and as a person can with
// kubectl. The manager has its default rails, so it is not parallel. The garbage collector is Kubernetes' own. No
// machine leaves until the wipe is confirmed; then one leaves at a time. A waiting machine keeps its Node and its
// infrastructure.
func TestAPruneWaitsForTheRails(t *testing.T) {
	for name, prune := range testenv.Sample(map[string]func(*lab, *v1alpha1.ScheduledMachine){
		"foreground": func(l *lab, sm *v1alpha1.ScheduledMachine) {
			l.delete(sm, client.PropagationPolicy(metav1.DeletePropagationForeground))
		},
		"machines": func(l *lab, sm *v1alpha1.ScheduledMachine) {
			l.delete(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name + "-machine"}})
		},
	}) {
		t.Run(name, func(t *testing.T) {
			const machines, leave = 12, 3
			l := newLab(t, "prune-"+name)
			l.waitCollector()
			var all []*v1alpha1.ScheduledMachine
			for i := range machines {
				all = append(all, l.started(fmt.Sprintf("box-%02d", i), nil))
			}
			for _, sm := range all {
				l.waitPhase(sm, active, metav1.ConditionTrue)
			}
			l.asShips(all[0])
			pruned := time.Now()
			for _, sm := range all {
				prune(l, sm)
			}
			gone := l.watchGoing(machines, leave)
			for _, sm := range all {
				if _, goes := gone[sm.Name+"-machine"]; !goes {
					l.wantLent(sm)
				}
			}
			var order []time.Duration
			for _, at := range gone {
				order = append(order, at.Sub(pruned))
			}
			slices.Sort(order)
			t.Logf("machines started to leave after %v", order)
			if order[0] < confirmedAfter {
				t.Errorf("the first leaves after %s: nobody has confirmed it", order[0])
			}
			for i := 1; i < len(order); i++ {
				if d := order[i] - order[i-1]; d < startWindow-heard {
					t.Errorf("two start within %s", d)
				}
			}
		})
	}
}

// confirmedAfter is less than the time of three checks of a wipe.
const confirmedAfter = 18 * time.Second

// watchGoing waits until that many of all Machines are being deleted, and returns when each was first observed.
func (l *lab) watchGoing(all, n int) map[string]time.Time {
	l.t.Helper()
	known, going := map[string]bool{}, map[string]time.Time{}
	l.until(func(ctx context.Context) error {
		list := &clusterv1.MachineList{}
		if err := shared.Management.Client.List(ctx, list, client.InNamespace(l.Key.Namespace)); err != nil {
			return err
		}
		stay := map[string]bool{}
		for i := range list.Items {
			m := &list.Items[i]
			known[m.Name] = true
			if _, held := m.Annotations[v1alpha1.PreDrainHookAnnotation]; held || m.DeletionTimestamp.IsZero() {
				stay[m.Name] = true
			}
		}
		for name := range known {
			if _, seen := going[name]; !seen && !stay[name] {
				going[name] = time.Now()
			}
		}
		switch {
		case len(known) != all:
			return fmt.Errorf("%d Machines are known, want %d", len(known), all)
		case len(going) < n:
			return fmt.Errorf("%d machines have started to leave, want %d", len(going), n)
		default:
			return nil
		}
	})
	return going
}

// wantLent checks that a machine is in its cluster, and that its infrastructure runs.
func (l *lab) wantLent(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	if node := l.node(sm); node.Spec.Unschedulable || !node.DeletionTimestamp.IsZero() {
		l.t.Errorf("Node %s is going, or cordoned, while its machine waits", node.Name)
	}
	infra := l.family(sm).infra
	if !infra.DeletionTimestamp.IsZero() {
		l.t.Errorf("%s is going while its machine waits", infra.Name)
	}
}

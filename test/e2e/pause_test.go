// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestPausedClusterMovesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, "paused")
	closes, killed, owned := l.running("closes", nil), l.running("killed", nil), l.running("owned", nil)
	goes, opens := l.running("goes", nil), l.started("opens", outside)
	l.waitPhase(opens, inactive, "")
	all := []*v1alpha1.ScheduledMachine{closes, killed, owned, goes, opens}
	alive := []family{l.family(closes), l.family(killed), l.family(owned), l.family(goes)}
	node := l.node(owned)

	l.pauseCluster(all...)
	mark := l.mark()
	l.closeWindow(closes)
	l.killSwitch(killed, true)
	l.askBack(node, "java")
	l.delete(goes)
	l.openWindow(opens)
	fresh := l.started("fresh", nil)
	holds(t, 4*shortly, func(ctx context.Context) error {
		for _, f := range alive {
			if err := unchanged(ctx, f.objects()...); err != nil {
				return err
			}
		}
		return nil
	})
	l.wantOnlyPauseReported(mark)
	l.nothingLeft(opens)
	l.nothingLeft(fresh)

	l.unpauseCluster()
	l.waitPhase(closes, inactive, metav1.ConditionTrue)
	l.waitPhase(killed, terminated, metav1.ConditionTrue)
	l.wantReclaimed(owned, "java")
	l.waitGone(goes)
	l.waitPhase(opens, active, metav1.ConditionTrue)
	l.waitPhase(fresh, active, metav1.ConditionTrue)
	l.waitCondition(opens, clusterv1.PausedCondition, metav1.ConditionFalse, "NotPaused")
}

// pauseCluster pauses the Cluster of the lab, and waits until the manager reports it on each of sms.
func (l *lab) pauseCluster(sms ...*v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.setPaused(true)
	for _, sm := range sms {
		l.waitCondition(sm, clusterv1.PausedCondition, metav1.ConditionTrue, "Paused")
	}
}

func (l *lab) unpauseCluster() {
	l.t.Helper()
	l.setPaused(false)
}

func (l *lab) setPaused(paused bool) {
	l.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}
	l.edit(cluster, func() { cluster.Spec.Paused = &paused })
}

// wantOnlyPauseReported checks that the manager wrote only the Paused condition.
func (l *lab) wantOnlyPauseReported(since int) {
	l.t.Helper()
	for _, w := range l.writes(since) {
		if w.ObjectRef.Resource != "scheduledmachines" || w.ObjectRef.Subresource != "status" {
			l.t.Errorf("a pause must stop every write but that of the Paused condition: %s", describe(w))
		}
	}
}

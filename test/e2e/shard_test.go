// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestWatchFilterShardsTheFleet runs a manager of one shard instead of the one of
// all, so it is not parallel.
func TestWatchFilterShardsTheFleet(t *testing.T) {
	l := newLab(t, "shard")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}
	l.edit(cluster, func() { cluster.Labels[clusterv1.WatchLabel] = "mine" })
	others := l.running("others", nil)
	node, before := l.node(others), l.family(others)

	l.must(shared.Manager.Stop())
	start := time.Now()
	defer func() { l.must(shared.Manager.Start(timeout(t, patience))) }()
	shard, err := shared.NewAddon(timeout(t, patience), plane.AddonOptions{
		Name: "5spot-shard", Path: shared.Program("manager"), ServiceAccount: system.ManagerAccount, Args: []string{"--watch-filter=mine"},
	})
	l.must(err)
	l.must(shard.Start(timeout(t, patience)))
	defer func() {
		if t.Failed() {
			t.Logf("log of the shard's manager:\n%s", shard.LogTail(40))
		}
		l.must(shard.Stop())
	}()

	mine := l.scheduledMachine("mine", planeMachine)
	mine.Labels = map[string]string{clusterv1.WatchLabel: "mine"}
	// The webhook is the stopped manager's.
	l.withoutWebhooks(func() {
		l.closeWindow(others)
		l.create(mine)
		l.waitPhase(mine, active, metav1.ConditionTrue)
		// What might wake the wrong manager: the Cluster, a child, a Node.
		l.edit(cluster, func() { metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "e2e", "touched") })
		l.edit(before.infra, func() { before.infra.Labels["e2e"] = "touched" })
		l.askBack(node, "java")
		holds(t, 3*shortly, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	})
	for _, e := range l.audit(shared.Management) {
		if e.User.Username == system.ManagerUser && e.RequestReceivedTimestamp.After(start) && isWrite(e) && e.ObjectRef != nil && e.ObjectRef.Name == others.Name {
			t.Errorf("an object of another shard must not be written: %s", describe(e))
		}
	}
}

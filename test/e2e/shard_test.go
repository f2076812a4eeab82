// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestWatchFilterShardsTheFleet replaces the shared manager by a manager of one shard, so it is not parallel.
func TestWatchFilterShardsTheFleet(t *testing.T) {
	l := newLab(t, "shard")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}
	l.edit(cluster, func() { cluster.Labels[clusterv1.WatchLabel] = "mine" })
	others := l.running("others", nil)
	node, before := l.node(others), l.family(others)

	l.must(shared.Manager.Stop())
	start := time.Now()
	defer func() { l.must(shared.Manager.Start(timeout(t, patience))) }()
	l.startManager("5spot-shard", "--watch-filter=mine")

	mine := l.scheduledMachine("mine", planeMachine)
	mine.Labels = map[string]string{clusterv1.WatchLabel: "mine"}
	// The stopped manager would serve the webhook.
	l.withoutWebhooks(func() {
		l.closeWindow(others)
		l.create(mine)
		l.waitPhase(mine, active, metav1.ConditionTrue)
		// Changes that could wrongly trigger the manager of another shard: the Cluster, a child, a Node.
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

// TestALabelIsEnoughToBeServed sets the label last, on each object where it may come last. It stops the shared manager,
// so it is not parallel.
func TestALabelIsEnoughToBeServed(t *testing.T) {
	long(t)
	l := newLab(t, "labels")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}
	label := func(obj client.Object) {
		l.edit(obj, func() {
			labels := obj.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[clusterv1.WatchLabel] = "mine"
			obj.SetLabels(labels)
		})
	}
	asked, noticed, leaves, lost := l.running("asked", nil), l.running("noticed", nil), l.running("leaves", nil), l.running("lost", nil)
	node := l.node(noticed)

	l.must(shared.Manager.Stop())
	defer func() { l.must(shared.Manager.Start(timeout(t, patience))) }()
	l.startManager("5spot-labels", "--watch-filter=mine")

	// A person requested the machine before any manager served its ScheduledMachine.
	l.edit(asked, func() {
		metav1.SetMetaDataAnnotation(&asked.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, v1alpha1.PersonsRequest("", "", time.Now()).String())
	})
	label(asked)
	l.waitPhase(asked, disabled, metav1.ConditionTrue)

	// The Node has a request, and no manager serves its Cluster: the status shows that, and the remedy.
	label(noticed)
	l.waitCondition(noticed, v1alpha1.WorkloadClusterReachableCondition, metav1.ConditionFalse, v1alpha1.WatchFilterMismatchReason)
	l.askBack(node, "java")
	machine := l.family(noticed).machine
	holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, machine) })
	label(cluster)
	l.wantReclaimed(noticed, "java")

	// The Machine is being deleted, and waits for 5-Spot's hooks.
	machine = l.family(leaves).machine
	l.delete(machine)
	holds(t, shortly, func(ctx context.Context) error {
		return shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
	})
	label(leaves)
	l.until(func(ctx context.Context) error {
		now := familyOf(leaves).machine
		if err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil || now.UID == machine.UID {
			return fmt.Errorf("the Machine is there: %w", err)
		}
		return nil
	})

	// The Machine has lost its ScheduledMachine, as in a restore from an old backup.
	machine = l.family(lost).machine
	l.edit(lost, func() { lost.Finalizers = nil })
	l.delete(lost, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	l.waitGone(lost)
	l.delete(machine)
	l.waitGone(machine)
}

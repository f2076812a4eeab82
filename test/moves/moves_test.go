// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestAnOperatorMovesItsPodFirst has a machine that leaves on schedule. Only the operator may end the pod.
func TestAnOperatorMovesItsPodFirst(t *testing.T) {
	t.Parallel()
	for name, inPlace := range map[string]bool{"renamed": false, "in-place": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, namespace, name, nil)
			d.SetSchedule(d.leaving, specs.Closed())
			d.waitHeld()
			time.Sleep(10 * time.Second) // The operator is slow, so that the step checks the pod twice.
			d.WantUntouched(d.pod)
			made := d.move(inPlace)
			begun := time.Now()
			reasons := d.waitGone()
			t.Logf("it left %v after its pod, and said %q", time.Since(begun), reasons)
			if slices.Contains(reasons, v1alpha1.StepsSkippedReason) {
				t.Errorf("it said %q", reasons)
			}
			if who, _ := d.ended(); who != operatorName+" delete" {
				t.Errorf("the pod was ended by %q", who)
			}
			now := &corev1.Pod{}
			d.must(d.Workload.Get(d.step(), client.ObjectKeyFromObject(made), now))
			if now.UID != made.UID || !now.DeletionTimestamp.IsZero() || len(now.Annotations) > 0 {
				t.Errorf("the pod that took its place: %+v", now.ObjectMeta)
			}
		})
	}
}

// TestASilentOperatorIsWaitedForHalfOfTheTime, and then the drain evicts its pod.
func TestASilentOperatorIsWaitedForHalfOfTheTime(t *testing.T) {
	system.Long(t)
	t.Parallel()
	d := newDatabase(t, namespace, "silent", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "60s" })
	d.SetSchedule(d.leaving, specs.Closed())
	d.waitHeld()
	if reasons := d.waitGone(); !slices.Contains(reasons, v1alpha1.StepsSkippedReason) {
		t.Errorf("it said %q", reasons)
	}
	who, at := d.ended()
	waited := at.Sub(d.machine.DeletionTimestamp.Time)
	t.Logf("%s of its pod came %v after the departure began", who, waited)
	if who != "cluster-api "+evicts || waited < 29*time.Second || waited > 50*time.Second {
		t.Error("want an eviction by Cluster API after half of the time, 30 s")
	}
}

// TestAnOwnerWaitsForNoOperator, whether the request comes before the departure or during the wait.
func TestAnOwnerWaitsForNoOperator(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"owner": false, "owner-meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, namespace, name, nil)
			if leaves {
				d.SetSchedule(d.leaving, specs.Closed())
				d.waitHeld()
			}
			node, infra := d.Node(d.leaving), d.Children(d.leaving)[1]
			begun := time.Now()
			d.AskBack(node, "java")
			d.must(await.Until(d.step(), func(ctx context.Context) error {
				err := d.Management.Get(ctx, client.ObjectKeyFromObject(infra), infra)
				if err == nil && infra.GetDeletionTimestamp().IsZero() {
					return errors.New("the owner waits")
				}
				return client.IgnoreNotFound(err)
			}))
			took := time.Since(begun)
			t.Logf("the owner waited for %v", took)
			if took > 15*time.Second {
				t.Error("want no wait for an operator that does nothing")
			}
			d.waitGone()
			d.WaitPhase(d.leaving, v1alpha1.PhaseDisabled, "")
		})
	}
}

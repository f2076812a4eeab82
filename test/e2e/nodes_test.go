// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// askBack writes a request on a Node, as the agent does.
func (l *lab) askBack(node *corev1.Node, pattern string) {
	l.t.Helper()
	l.annotate(node, map[string]string{
		reclaim.RequestedAnnotation:   reclaim.RequestedValue,
		reclaim.ReasonAnnotation:      reclaim.Reason(pattern),
		reclaim.RequestedAtAnnotation: time.Now().UTC().Format(time.RFC3339),
	})
}

// annotate adds annotations to a Node of the workload cluster.
func (l *lab) annotate(node *corev1.Node, annotations map[string]string) {
	l.t.Helper()
	patch := client.MergeFrom(node.DeepCopy())
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	maps.Copy(node.Annotations, annotations)
	l.must(workload.Client.Patch(timeout(l.t, patience), node, patch))
}

// waitCleared waits until a Node that stayed carries no request any more.
func (l *lab) waitCleared(node *corev1.Node) {
	l.t.Helper()
	l.must(workload.Wait(timeout(l.t, patience), node, func() error {
		for _, key := range []string{reclaim.RequestedAnnotation, reclaim.ReasonAnnotation, reclaim.RequestedAtAnnotation} {
			if v, ok := node.Annotations[key]; ok {
				return fmt.Errorf("it still carries %s=%q", key, v)
			}
		}
		return nil
	}))
}

// ownNode makes a Node that is registered before its Machine exists, and is not
// deleted with it: a box that was installed once and has its own kubelet. It is
// the Node of the ScheduledMachine of that name.
func (l *lab) ownNode(name string) *corev1.Node {
	l.t.Helper()
	machine := l.Key.Name + "-" + name
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machine + "-machine"},
		Spec:       corev1.NodeSpec{ProviderID: "plane://" + l.Key.Namespace + "/" + machine + "-infra"},
	}
	l.must(workload.Client.Create(timeout(l.t, patience), node))
	return node
}

// keepNode makes a Node outlive its Machine by a finalizer, as a slow cloud
// controller does.
func (l *lab) keepNode(node *corev1.Node) {
	l.t.Helper()
	const finalizer = "e2e.5spot.finos.org/keep"
	patch := client.MergeFrom(node.DeepCopy())
	node.Finalizers = append(node.Finalizers, finalizer)
	l.must(workload.Client.Patch(timeout(l.t, patience), node, patch))
	l.t.Cleanup(func() { removeFinalizers(l.t, node) })
}

func removeFinalizers(t *testing.T, node *corev1.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`))
	if err := workload.Client.Patch(ctx, node, patch); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("letting Node %s go: %v", node.Name, err)
	}
}

// wantReclaimed waits for the end of an emergency reclaim and checks what the
// contract promises of it.
func (l *lab) wantReclaimed(sm *v1alpha1.ScheduledMachine, pattern string) {
	l.t.Helper()
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	if sm.ScheduleEnabled() {
		l.t.Error("spec.schedule.enabled must be false, or the machine comes back while its owner uses it")
	}
	if v, ok := sm.Annotations[v1alpha1.EmergencyReclaimAnnotation]; ok {
		l.t.Errorf("the request must be forgotten when it has been served: %s", v)
	}
	c := condition(sm, v1alpha1.ScheduledCondition)
	want := "Schedule auto-disabled by emergency reclaim (process-match: " + pattern + "). Re-enable with kubectl patch when ready."
	if c.Status != metav1.ConditionFalse || c.Reason != "EmergencyReclaimDisabledSchedule" || c.Message != want {
		l.t.Errorf("the Scheduled condition must tell what happened:\n got %s/%s: %s\nwant False/EmergencyReclaimDisabledSchedule: %s", c.Status, c.Reason, c.Message, want)
	}
	l.wantNothing(sm)
}

// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// Node returns the Node of a ScheduledMachine, by its status.
func (c *Cluster) Node(sm *v1alpha1.ScheduledMachine) *corev1.Node {
	c.T.Helper()
	if sm.Status.NodeRef == nil {
		c.T.Fatalf("ScheduledMachine %s has no nodeRef in phase %s", sm.Name, sm.Status.Phase)
		return nil
	}
	node := &corev1.Node{}
	c.must(c.Workload.Get(c.timeout(), client.ObjectKey{Name: sm.Status.NodeRef.Name}, node))
	return node
}

// Annotate adds annotations to a Node.
func (c *Cluster) Annotate(node *corev1.Node, annotations map[string]string) {
	c.T.Helper()
	patch := client.MergeFrom(node.DeepCopy())
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	maps.Copy(node.Annotations, annotations)
	c.must(c.Workload.Patch(c.timeout(), node, patch))
}

// AskBack writes a request on a Node, as the agent does.
func (c *Cluster) AskBack(node *corev1.Node, pattern string) {
	c.T.Helper()
	c.Annotate(node, map[string]string{
		reclaim.RequestedAnnotation:   reclaim.RequestedValue,
		reclaim.ReasonAnnotation:      reclaim.Reason(pattern),
		reclaim.RequestedAtAnnotation: time.Now().UTC().Format(time.RFC3339),
	})
}

// WaitCleared waits until a remaining Node has no request any more.
func (c *Cluster) WaitCleared(node *corev1.Node) {
	c.T.Helper()
	c.must(await.Object(c.timeout(), c.Workload, node, func() error {
		for _, key := range []string{reclaim.RequestedAnnotation, reclaim.ReasonAnnotation, reclaim.RequestedAtAnnotation} {
			if v, ok := node.Annotations[key]; ok {
				return fmt.Errorf("it still carries %s=%q", key, v)
			}
		}
		return nil
	}))
}

// KeepNode makes a Node outlive its Machine by a finalizer, as a slow cloud
// controller does, until the test ends.
func (c *Cluster) KeepNode(node *corev1.Node) {
	c.T.Helper()
	patch := client.MergeFrom(node.DeepCopy())
	node.Finalizers = append(node.Finalizers, "e2e.5spot.finos.org/keep")
	c.must(c.Workload.Patch(c.timeout(), node, patch))
	c.T.Cleanup(func() { c.releaseNode(node) })
}

func (c *Cluster) releaseNode(node *corev1.Node) {
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
	defer cancel()
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Workload.Patch(ctx, node, patch); err != nil && !apierrors.IsNotFound(err) {
		c.T.Errorf("letting Node %s go: %v", node.Name, err)
	}
}

// WantReclaimed waits for the end of an emergency reclaim, and checks its documented result.
func (c *Cluster) WantReclaimed(sm *v1alpha1.ScheduledMachine, pattern string) {
	c.T.Helper()
	c.WaitPhase(sm, v1alpha1.PhaseDisabled, metav1.ConditionTrue)
	if sm.ScheduleEnabled() {
		c.T.Errorf("spec.schedule.enabled must be false, or the machine comes back while its owner uses it")
	}
	if v, ok := sm.Annotations[v1alpha1.EmergencyReclaimAnnotation]; ok {
		c.T.Errorf("the request must be forgotten when it has been served: %s", v)
	}
	got := Condition(sm, v1alpha1.ScheduledCondition)
	want := "Schedule auto-disabled by emergency reclaim (process-match: " + pattern + "). Re-enable with kubectl patch when ready."
	if got.Status != metav1.ConditionFalse || got.Reason != "EmergencyReclaimDisabledSchedule" || got.Message != want {
		c.T.Errorf("the Scheduled condition must tell what happened:\n got %s/%s: %s\nwant False/EmergencyReclaimDisabledSchedule: %s",
			got.Status, got.Reason, got.Message, want)
	}
	c.WantCleared(sm)
}

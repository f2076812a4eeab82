// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTaintsOfABorrowedNode(t *testing.T) {
	t.Parallel()
	l := newLab(t, "taints")
	borrowed := v1alpha1.NodeTaint{Key: "example.org/borrowed", Value: "night", Effect: corev1.TaintEffectNoSchedule}
	admins := corev1.Taint{Key: "example.org/admins", Effect: corev1.TaintEffectNoSchedule}
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.NodeTaints = []v1alpha1.NodeTaint{borrowed} })
	l.waitCondition(sm, v1alpha1.NodeTaintedCondition, metav1.ConditionTrue, "Applied")
	if want := []v1alpha1.AppliedNodeTaint{v1alpha1.AppliedNodeTaint(borrowed)}; !slices.Equal(sm.Status.AppliedNodeTaints, want) {
		t.Errorf("status.appliedNodeTaints is %v, want %v", sm.Status.AppliedNodeTaints, want)
	}
	node := l.node(sm)
	l.wantTaints(node, onNode(borrowed))
	l.wantStatusShows(sm, "NodeTainted")

	l.editNode(node, func() { node.Spec.Taints = append(node.Spec.Taints, admins) })
	borrowed.Value = "day"
	l.edit(sm, func() { sm.Spec.NodeTaints = []v1alpha1.NodeTaint{borrowed} })
	l.wantTaints(node, onNode(borrowed), admins)

	l.edit(sm, func() {
		sm.Spec.NodeTaints = append(sm.Spec.NodeTaints, v1alpha1.NodeTaint{Key: admins.Key, Value: "x", Effect: admins.Effect})
	})
	l.waitCondition(sm, v1alpha1.NodeTaintedCondition, metav1.ConditionFalse, "TaintOwnershipConflict", "the Node has example.org/admins:NoSchedule, set by another manager")
	l.waitSettled([]*v1alpha1.ScheduledMachine{sm})
	node = l.node(sm)
	l.editNode(node, func() { metav1.SetMetaDataAnnotation(&node.ObjectMeta, "example.org/heartbeat", "1") })
	holds(t, 2*time.Second, func(ctx context.Context) error { return workloadUnchanged(ctx, node) })

	l.edit(sm, func() { sm.Spec.NodeTaints = nil })
	l.wantTaints(node, admins)
	l.waitFor(sm, func() error {
		if c := condition(sm, v1alpha1.NodeTaintedCondition); c.Status != "missing" || len(sm.Status.AppliedNodeTaints) > 0 {
			return fmt.Errorf("it still tells of taints: %v, %v", c, sm.Status.AppliedNodeTaints)
		}
		return nil
	})
	err := l.tryEdit(sm, func() {
		sm.Spec.NodeTaints = []v1alpha1.NodeTaint{{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}}
	})
	if err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("a reserved key must be refused, got %v", err)
	}
}

func onNode(t v1alpha1.NodeTaint) corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// wantTaints waits until a Node has these taints, in any order, and no others.
func (l *lab) wantTaints(node *corev1.Node, want ...corev1.Taint) {
	l.t.Helper()
	l.must(workload.Wait(timeout(l.t, patience), node, func() error {
		missing := slices.ContainsFunc(want, func(t corev1.Taint) bool { return !slices.Contains(node.Spec.Taints, t) })
		if missing || len(node.Spec.Taints) != len(want) {
			return fmt.Errorf("its taints are %v, want %v", node.Spec.Taints, want)
		}
		return nil
	}))
}

// editNode changes a Node as kubectl taint does: with a conflict if it has changed since.
func (l *lab) editNode(node *corev1.Node, mutate func()) {
	l.t.Helper()
	ctx := timeout(l.t, patience)
	l.must(workload.Client.Get(ctx, client.ObjectKeyFromObject(node), node))
	before := node.DeepCopy()
	mutate()
	l.must(workload.Client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// workloadUnchanged returns an error if taints or annotations of a Node of the workload cluster have changed.
func workloadUnchanged(ctx context.Context, node *corev1.Node) error {
	now := &corev1.Node{}
	if err := workload.Client.Get(ctx, client.ObjectKeyFromObject(node), now); err != nil {
		return err
	}
	if fmt.Sprint(now.Spec.Taints, now.Annotations) != fmt.Sprint(node.Spec.Taints, node.Annotations) {
		return fmt.Errorf("taints and annotations became %v, %v", now.Spec.Taints, now.Annotations)
	}
	return nil
}

// wantStatusShows checks that kubectl 5spot shows a condition, and no problem.
func (l *lab) wantStatusShows(sm *v1alpha1.ScheduledMachine, kind string) {
	l.t.Helper()
	cmd := exec.CommandContext(timeout(l.t, patience), shared.Program("kubectl-5spot"),
		"--kubeconfig", shared.Management.Admin.Kubeconfig, "-n", sm.Namespace, "status", sm.Name)
	out, err := cmd.CombinedOutput()
	l.must(err)
	for _, want := range []string{"Active, inside the window", "Machine is healthy and running", kind} {
		if !strings.Contains(string(out), want) {
			l.t.Errorf("kubectl 5spot status does not say %q:\n%s", want, out)
		}
	}
}

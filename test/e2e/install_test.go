// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestTheAgentIsInstalledWhereSomebodyAsksForIt has its own workload cluster, because the installation is per Cluster.
func TestTheAgentIsInstalledWhereSomebodyAsksForIt(t *testing.T) {
	t.Parallel()
	l := newNamespace(t, "install")
	w, err := shared.NewWorkload(timeout(t, patience), plane.WorkloadOptions{
		Name: "install", Namespace: "install",
		ClusterOptions: plane.ClusterOptions{NodeMonitorGrace: 10 * time.Minute, AuditBodies: system.JudgedInWorkload},
	})
	l.must(err)
	objects, err := manifests.Objects()
	l.must(err)
	sm := system.ScheduledMachine(w, "install-box", infrav1.PlaneMachineSpec{})
	sm.Spec.KillIfCommands = []string{"java"}
	l.create(sm)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	node := sm.Status.NodeRef.Name

	l.waitConfigured(w.Cluster, node, "java")
	for _, u := range objects {
		l.must(w.Wait(timeout(t, patience), u.DeepCopy(), func() error { return nil }))
	}
	l.wantInstalledInOrder(w, len(objects))
	pods := &corev1.PodList{}
	l.until(func(ctx context.Context) error {
		if err := w.Client.List(ctx, pods, client.InNamespace(reclaim.Namespace)); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Spec.Affinity == nil {
			return errors.New("the DaemonSet has no pod for the Node")
		}
		return nil
	})

	settled := len(l.installerWrites(w))
	holds(t, 3*shortly, func(context.Context) error {
		if writes := l.installerWrites(w); len(writes) != settled {
			return errors.New("a settled cluster is written:\n" + describeAll(writes[settled:]))
		}
		return nil
	})

	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: "reclaim-agent"}}
	l.must(w.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(ds), ds))
	uid := ds.UID
	l.must(w.Client.Delete(timeout(t, patience), ds))
	l.must(w.Wait(timeout(t, patience), ds, func() error {
		if ds.UID == uid {
			return errors.New("it is still the one that was deleted")
		}
		return nil
	}))

	l.edit(sm, func() { sm.Spec.KillIfCommands = []string{"idea"} })
	l.waitConfigured(w.Cluster, node, "idea")
	l.edit(sm, func() { sm.Spec.KillIfCommands = nil })
	l.wantUninstalled(w, node)
	l.waitPhase(sm, active, metav1.ConditionTrue)
}

// wantUninstalled waits until only the Namespace is left of the installation, and the Node has no label.
func (l *lab) wantUninstalled(w *plane.Workload, node string) {
	l.t.Helper()
	objects, err := manifests.Objects()
	l.must(err)
	for _, u := range objects[1:] {
		l.must(w.WaitGone(timeout(l.t, patience), u))
	}
	l.must(w.WaitGone(timeout(l.t, patience), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: reclaim.ConfigMapName(node)}}))
	left := &corev1.Node{}
	l.must(w.Client.Get(timeout(l.t, patience), client.ObjectKey{Name: node}, left))
	if v, ok := left.Labels[reclaim.AgentLabel]; ok {
		l.t.Errorf("the Node is still opted in: %s", v)
	}
	namespace := &corev1.Namespace{}
	l.must(w.Client.Get(timeout(l.t, patience), client.ObjectKey{Name: reclaim.Namespace}, namespace))
	if !namespace.DeletionTimestamp.IsZero() {
		l.t.Error("the Namespace must stay: others may have put something into it")
	}
}

// wantInstalledInOrder checks that the policy came before all permissions, and all permissions before the agent.
func (l *lab) wantInstalledInOrder(w *plane.Workload, n int) {
	l.t.Helper()
	var order []string
	for _, e := range l.installerWrites(w) {
		if accepted(e) && len(order) < n {
			order = append(order, e.ObjectRef.Resource)
		}
	}
	rank := func(resource string) int {
		switch {
		case resource == "namespaces":
			return 0
		case strings.HasPrefix(resource, "validatingadmissionpolic"):
			return 1
		case resource == "daemonsets":
			return 3
		default:
			return 2
		}
	}
	last := 0
	for _, resource := range order {
		if rank(resource) < last {
			l.t.Errorf("%s came too late: %v", resource, order)
		}
		last = rank(resource)
	}
	if len(order) != n || last != 3 {
		l.t.Errorf("%d objects are installed, the agent last; the first writes were: %v", n, order)
	}
}

// installerWrites returns the manager's writes to a workload cluster, except writes for an emergency.
func (l *lab) installerWrites(w *plane.Workload) []auditv1.Event {
	l.t.Helper()
	var writes []auditv1.Event
	for _, e := range l.audit(w.Cluster) {
		if isWrite(e) && strings.Contains(e.UserAgent, system.ManagerName) {
			writes = append(writes, e)
		}
	}
	return writes
}

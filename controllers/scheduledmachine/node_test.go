// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// overdue returns a departure whose budget is over, during Cluster API's drain. The infrastructure is being deleted,
// and Cluster API does not reconcile the Machine for a while. Its Node, changed by change, is in the same API server.
func overdue(t *testing.T, fail testenv.Fail, change func(*corev1.Node)) (*world, *corev1.Node) {
	t.Helper()
	w := newWorld(t, nil)
	w.running()
	m, _ := w.machine()
	w.Edit(m, func() { m.Spec.ProviderID = "lab://box" })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box-node", Annotations: map[string]string{
		clusterv1.ClusterNamespaceAnnotation: w.sm.Namespace, clusterv1.MachineAnnotation: m.Name,
	}}}
	node.Spec.ProviderID = m.Spec.ProviderID
	if change != nil {
		change(node)
	}
	w.Create(node)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		before := node.DeepCopy()
		node.Finalizers = nil
		_ = w.Client.Patch(ctx, node, client.MergeFrom(before))
		_ = w.Client.Delete(ctx, node)
	})
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.DaysOfWeek = nil })
	w.settle()
	m, _ = w.machine()
	w.report(m, clusterv1.MachineDeletingCondition, metav1.ConditionTrue, clusterv1.MachineDeletingDrainingNodeReason, "Drain not completed yet: Pod work/stays")
	w.clock.SetTime(m.DeletionTimestamp.Add(time.Hour))
	w.settle()
	if i, _ := w.infra(); i.GetDeletionTimestamp().IsZero() {
		t.Fatalf("the budget is over, and the infrastructure stays: %q", w.Writes)
	}
	w.Writes, w.Fail = nil, fail
	return w, node
}

// infraGone deletes the infrastructure like a provider, and triggers the watch event.
func (w *world) infraGone() {
	w.Helper()
	i, _ := w.infra()
	w.letGo(i)
	w.settle()
}

func TestANodeGoesWithItsMachine(t *testing.T) {
	w, node := overdue(t, nil, nil)
	w.settle()
	if !w.Read(node) || w.sm.Status.NodeRef == nil {
		t.Error("the Node goes before the host is free")
	}
	w.Writes = nil
	w.infraGone()
	if diff := cmp.Diff([]string{"delete Node", "patch ScheduledMachine status"}, w.Writes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if w.Read(node) {
		t.Error("the Node outlives its machine")
	}
	w.want(v1alpha1.PhaseShuttingDown, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ShuttingDownReason)
	st := w.sm.Status
	if st.NodeRef != nil || st.InfrastructureRef != nil || st.MachineRef == nil {
		t.Errorf("the Machine is left, and nothing else: %+v", st)
	}
	if !strings.Contains(st.Message, "The infrastructure and Node box-node are gone") || strings.Contains(st.Message, "work/stays") {
		t.Errorf("what is left to wait for is Cluster API: %q", st.Message)
	}
	w.Writes = nil
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("there is nothing left to do: %q", w.Writes)
	}
	w.gone()
	w.settle()
	w.want(v1alpha1.PhaseInactive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InactiveReason)
}

func TestAnotherNodeStays(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"OfAnotherHost":    func(n *corev1.Node) { n.Spec.ProviderID = "lab://other" },
		"OfNoHost":         func(n *corev1.Node) { n.Spec.ProviderID = "" },
		"OfAnotherMachine": func(n *corev1.Node) { n.Annotations[clusterv1.MachineAnnotation] = "other" },
		"OfAnother":        func(n *corev1.Node) { n.Annotations[clusterv1.ClusterNamespaceAnnotation] = "other" },
		"WithoutOwner":     func(n *corev1.Node) { n.Annotations = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w, node := overdue(t, nil, change)
			w.infraGone()
			if !w.Read(node) || !node.DeletionTimestamp.IsZero() {
				t.Error("a Node was deleted that is not known to be this machine's")
			}
			w.want(v1alpha1.PhaseShuttingDown, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ShuttingDownReason)
			if w.sm.Status.NodeRef == nil {
				t.Error("the status does not show that the Node is gone")
			}
		})
	}
}

func TestANodeThatIsHeldIsLeaving(t *testing.T) {
	w, node := overdue(t, nil, func(n *corev1.Node) { n.Finalizers = []string{"test/hold"} })
	w.infraGone()
	w.settle()
	if !w.Read(node) || node.DeletionTimestamp.IsZero() {
		t.Error("the Node is not being deleted")
	}
	if w.sm.Status.NodeRef == nil || !strings.Contains(w.sm.Status.Message, "The infrastructure is gone;") {
		t.Errorf("it is not gone: %+v", w.sm.Status)
	}
}

// TestAControlPlanesNodeIsClusterAPIs checks that the controller does not delete Nodes of a control plane. Cluster API
// also removes their etcd members.
func TestAControlPlanesNodeIsClusterAPIs(t *testing.T) {
	w, node := overdue(t, nil, nil)
	m, _ := w.machine()
	w.Edit(m, func() { m.Labels[clusterv1.MachineControlPlaneLabel] = "" })
	w.infraGone()
	if !w.Read(node) || !node.DeletionTimestamp.IsZero() {
		t.Error("the Node of a control plane was deleted")
	}
}

func TestAnUnreachableClusterHoldsNothingUp(t *testing.T) {
	noRoute := errors.New("no route to the workload cluster")
	for name, tc := range map[string]struct {
		outage func(w *world)
		// seen changes the state so that the Node's deletion becomes visible after the outage.
		seen func(w *world)
	}{
		"NotConnected": {
			func(w *world) {
				w.r.ClusterCache = clustercache.NewFakeClusterCache(w.Client, client.ObjectKey{Namespace: w.sm.Namespace, Name: "other"})
			},
			func(w *world) {
				w.r.ClusterCache = clustercache.NewFakeClusterCache(w.Client, client.ObjectKeyFromObject(w.cluster))
			},
		},
		"NotRead": {
			func(w *world) {
				cannot := interceptor.NewClient(w.Client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if _, ok := obj.(*corev1.Node); ok {
						return noRoute
					}
					return c.Get(ctx, key, obj, opts...)
				}})
				w.r.ClusterCache = clustercache.NewFakeClusterCache(cannot, client.ObjectKeyFromObject(w.cluster))
			},
			func(w *world) {
				w.r.ClusterCache = clustercache.NewFakeClusterCache(w.Client, client.ObjectKeyFromObject(w.cluster))
			},
		},
		"NotDeleted": {
			func(w *world) {
				w.Fail = func(n int) (before, after error) {
					if w.Writes[n] == "delete Node" {
						return noRoute, nil
					}
					return nil, nil
				}
			},
			func(w *world) { w.Fail = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, node := overdue(t, nil, nil)
			tc.outage(w)
			w.infraGone()
			w.want(v1alpha1.PhaseShuttingDown, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ShuttingDownReason)
			if w.sm.Status.NodeRef == nil || w.sm.Status.InfrastructureRef != nil {
				t.Errorf("the Node is unknown, and the infrastructure is gone: %+v", w.sm.Status)
			}
			if !strings.Contains(w.sm.Status.Message, "The infrastructure is gone;") {
				t.Errorf("it does not say that the host is free: %q", w.sm.Status.Message)
			}
			next := w.reconcile().RequeueAfter
			if next != 0 && next < time.Second || name != "NotConnected" && next == 0 {
				t.Errorf("is looked at again in %v, not after a back-off", next)
			}
			tc.seen(w)
			w.settle()
			if w.Read(node) || w.sm.Status.NodeRef != nil {
				t.Error("the Node is forgotten")
			}
		})
		t.Run(name+"ToTheEnd", func(t *testing.T) {
			w, _ := overdue(t, nil, nil)
			tc.outage(w)
			w.infraGone()
			w.gone()
			w.settle()
			w.want(v1alpha1.PhaseInactive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InactiveReason)
		})
	}
}

func TestInfrastructureThatCannotBeReadIsNotGone(t *testing.T) {
	for _, name := range []string{"VersionNotServed", "DefinitionUnreadable", "ConversionWebhookDown"} {
		o := outages[name]
		t.Run(name, func(t *testing.T) {
			w, node := overdue(t, nil, nil)
			i, _ := w.infra()
			w.letGo(i)
			lasts := true
			w.r = w.reconciler(w.Recorded(o.reads(&lasts)))
			w.reconcile()
			w.reconcile()
			if !w.Read(node) || w.sm.Status.NodeRef == nil {
				t.Error("the Node was taken away because of what cannot be read")
			}
			lasts = false
			w.settle()
			if w.Read(node) {
				t.Error("the Node outlives its machine")
			}
		})
	}
}

// TestCrashPointsOfANode stops the controller before and after each write while it deletes the Node of a machine that
// is gone.
func TestCrashPointsOfANode(t *testing.T) { testenv.CrashPoints(t, 2, end) }

// end returns the observed states of the departure of a machine that is gone.
func end(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
	t.Helper()
	w, node := overdue(t, fail, nil)
	i, _ := w.infra()
	w.letGo(i)
	for range 5 {
		w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
		if next := w.settle(); next == 0 {
			break
		}
	}
	stations = append(stations, fmt.Sprintf("%s node=%t reported=%t: %s", w.sm.Status.Phase, w.Read(node), w.sm.Status.NodeRef != nil,
		conditions.GetMessage(w.sm, v1alpha1.ReadyCondition)))
	return stations, len(w.Writes)
}

// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// believed sets the accepted host data in the status.
func (w *world) believed(node, providerID string) {
	w.Helper()
	w.Read(w.sm)
	w.sm.Status.NodeRef, w.sm.Status.ProviderID = &v1alpha1.NodeReference{Name: node}, providerID
	w.sm.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: "box-machine", UID: w.machine().UID}
	w.Must(w.Client.Status().Update(w.Context(), w.sm))
}

// names makes the Machine report another Node and provider ID.
func (w *world) names(node, providerID string) {
	w.Helper()
	m := w.machine()
	w.Edit(m, func() { m.Spec.ProviderID = providerID })
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: node}
	w.Must(w.Client.Status().Update(w.Context(), m))
}

// other creates another Node with a provider ID.
func (w *world) other(providerID string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	w.Create(node)
	w.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(w.Context()), node) })
	return node
}

// rival creates another Machine of the Cluster that names the same Node.
func (w *world) rival() *clusterv1.Machine {
	w.Helper()
	m := w.machine()
	r := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "rival"}, Spec: m.Spec}
	w.Create(r)
	r.Status.NodeRef = m.Status.NodeRef
	w.Must(w.Client.Status().Update(w.Context(), r))
	return r
}

// TestAnOwnerIsServedWhateverTheMachineSays covers a request on the accepted Node.
func TestAnOwnerIsServedWhateverTheMachineSays(t *testing.T) {
	for name, says := range map[string][2]string{"AnotherNode": {"elsewhere", "lab://box"}, "NoNode": {"", "lab://box"}, "AnotherID": {"", "lab://else"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Edit(w.node, func() { w.node.Spec.ProviderID = "lab://box" })
			w.believed(w.node.Name, "lab://box")
			w.names(says[0], says[1])
			w.annotate("true")
			w.settle()
			if w.machine().DeletionTimestamp.IsZero() {
				t.Errorf("the owner is not served: %q", w.Writes)
			}
		})
	}
}

// TestANodeThatIsNotBelievedIsLeftAlone covers rejected Nodes. Only a Node that proves to be the host is served.
func TestANodeThatIsNotBelievedIsLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		id     string
		served bool
	}{"Another": {"lab://other", false}, "Unknown": {"", false}, "Proves": {"lab://box", true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.believed(w.node.Name, "lab://box")
			w.node = w.other(tc.id)
			w.names(w.node.Name, "lab://box")
			w.annotate("true")
			w.Writes = nil
			w.settle()
			if served := !w.machine().DeletionTimestamp.IsZero(); served != tc.served {
				t.Errorf("served: %t, want %t: %q", served, tc.served, w.Writes)
			}
			if !tc.served && len(w.Writes) != 0 {
				t.Errorf("it is another's: %q", w.Writes)
			}
		})
	}
}

// TestAnOwnerIsHeardOnEitherNode covers an accepted Node with a request that is not served, and a fresh request on the
// other Node.
func TestAnOwnerIsHeardOnEitherNode(t *testing.T) {
	const at = "2020-04-20T21:45:00Z"
	for name, tc := range map[string]struct {
		reason string
		change func(*world, *corev1.Node)
	}{
		"Foreign": {"Another host took its name.", func(w *world, n *corev1.Node) {
			w.Edit(n, func() { n.Spec.ProviderID = "lab://other" })
		}},
		"Stale": {"An earlier Machine left it.", func(w *world, n *corev1.Node) {
			w.r = w.reconciler(w.Recorded(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				err := c.Get(ctx, key, obj, opts...)
				if key.Name == n.Name {
					obj.SetCreationTimestamp(metav1.Unix(0, 0))
					obj.SetManagedFields(nil)
				}
				return err
			}}))
		}},
		"Served": {"The machine was lent again before it was cleared.", func(w *world, n *corev1.Node) {
			record := v1alpha1.ReclaimRecord{Node: n.Name, NodeUID: n.UID, RequestedAt: at}
			w.Edit(w.sm, func() { metav1.SetMetaDataAnnotation(&w.sm.ObjectMeta, v1alpha1.ReclaimedAnnotation, record.String()) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.believed(w.node.Name, "lab://box")
			believed := w.node
			w.annotate("true")
			w.Edit(believed, func() { believed.Annotations[reclaimapi.RequestedAtAnnotation] = at })
			w.node = w.other("lab://box")
			w.names(w.node.Name, "lab://box")
			tc.change(w, believed)
			w.annotate("true")
			w.resync()
			if w.machine().DeletionTimestamp.IsZero() {
				t.Errorf("the owner is not served: %s", tc.reason)
			}
			if got := w.request().NodeUID; got != w.node.UID {
				t.Errorf("the request of Node %s is served, want that of %s", got, w.node.UID)
			}
			if len(w.Writes) == 0 || w.Writes[0] != "patch ScheduledMachine" {
				t.Errorf("something else comes first: %q", w.Writes)
			}
		})
	}
}

// TestASharedNodeTakesNoMachineItIsNotOf covers a Node that two Machines name, and that was accepted for neither.
func TestASharedNodeTakesNoMachineItIsNotOf(t *testing.T) {
	w := newWorld(t)
	w.names(w.node.Name, "lab://box")
	w.Edit(w.node, func() { w.node.Spec.ProviderID = "" })
	r := w.rival()
	w.annotate("true")
	w.settle()
	if !w.machine().DeletionTimestamp.IsZero() {
		t.Fatal("a Machine is taken away for the Node of another")
	}
	w.Must(w.Client.Delete(t.Context(), r))
	w.settle()
	if w.machine().DeletionTimestamp.IsZero() {
		t.Error("the other is gone, and the owner still waits")
	}
}

// TestMalformedAnnotationsAreReportedOnce checks that an annotation that is no request causes an Event. A malformed
// annotation of a request causes only a log line and a metric, because the owner comes first.
func TestMalformedAnnotationsAreReportedOnce(t *testing.T) {
	w := newWorld(t)
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
	w.annotate("True")
	w.resync()
	w.resync()
	told := w.events()
	if len(told) != 1 || !strings.Contains(told[0], v1alpha1.RecordRejectedEvent) || !strings.Contains(told[0], `is "True", which is no request`) {
		t.Fatalf("told %q", told)
	}
	if len(w.Writes) != 0 {
		t.Errorf("writes without a request: %q", w.Writes)
	}
	w.Edit(w.node, func() {
		w.node.Annotations[reclaimapi.RequestedAnnotation], w.node.Annotations[reclaimapi.ReasonAnnotation] = "true", "a\nb"
		w.node.Annotations[reclaimapi.HoldAnnotation] = "soon"
	})
	w.resync()
	for _, note := range w.events() {
		if strings.Contains(note, v1alpha1.RecordRejectedEvent) {
			t.Errorf("told %q", note)
		}
	}
	if diff := cmp.Diff("a b", w.request().Reason); diff != "" || w.machine().DeletionTimestamp.IsZero() {
		t.Errorf("hidden characters must be removed from the request: -want, +got:\n%s", diff)
	}
}

func (w *world) request() v1alpha1.ReclaimRecord {
	w.Read(w.sm)
	record, _ := w.sm.ReclaimRequest()
	return record
}

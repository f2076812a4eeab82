// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestAnOwnerStaysHeardWhateverTheMachineSays checks that the agent stays on the accepted Node. It also stays on a Node
// whose owner is unknown.
func TestAnOwnerStaysHeardWhateverTheMachineSays(t *testing.T) {
	for name, known := range map[string]bool{"Believed": true, "Shared": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "java")
			w.settle()
			w.optIn(w.node)
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: reclaimapi.ConfigMapName(w.node.Name)}}
			if !w.Read(cm) {
				t.Fatal("no ConfigMap")
			}
			m := w.machine(w.sm)
			if known {
				w.Read(w.sm)
				w.sm.Status.NodeRef = &v1alpha1.NodeReference{Name: w.node.Name}
				w.sm.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: m.Name, UID: m.UID}
				w.Must(w.Client.Status().Update(t.Context(), w.sm))
				m.Status.NodeRef = clusterv1.MachineNodeReference{Name: "elsewhere"}
				w.Must(w.Client.Status().Update(t.Context(), m))
			} else {
				rival := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "rival"}, Spec: m.Spec}
				w.Create(rival)
				rival.Status.NodeRef = m.Status.NodeRef
				w.Must(w.Client.Status().Update(t.Context(), rival))
			}
			if writes := w.settle(); len(writes) != 0 {
				t.Errorf("nothing is taken away: %q", writes)
			}
			if w.Read(w.node); !w.Read(cm) || w.node.Labels[reclaimapi.AgentLabel] == "" {
				t.Errorf("its owner is not heard any more: %v", w.node.Labels)
			}
		})
	}
}

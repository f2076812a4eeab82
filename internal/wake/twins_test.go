// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

func TestANodeOfTwoMachinesWakesBoth(t *testing.T) {
	scheme := runtime.NewScheme()
	_ = clusterv1.AddToScheme(scheme)
	m := func(sm string) *clusterv1.Machine {
		return &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: sm + "-machine", Labels: map[string]string{v1alpha1.ScheduledMachineLabel: sm}},
			Spec:       clusterv1.MachineSpec{ClusterName: "c"},
			Status:     clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "desk"}},
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(m("a"), m("b")).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, func(o client.Object) []string {
			return []string{o.(*clusterv1.Machine).Status.NodeRef.Name}
		}).Build()
	got := wake.Mapper{Reader: c}.OfNode(t.Context(), client.ObjectKey{Namespace: "lab", Name: "c"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "desk"}})
	if len(got) != 2 {
		t.Fatalf("woken: %v", got)
	}
}

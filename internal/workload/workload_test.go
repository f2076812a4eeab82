// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

func TestACacheThatIsLateIsNoPermission(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	holding := func(objects ...client.Object) client.Reader {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	}
	paused := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "lab"}, Spec: clusterv1.ClusterSpec{Paused: new(true)}}
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "box"}}
	for name, tc := range map[string]struct {
		reason        string
		cached, live  client.Reader
		found, paused bool
	}{
		"Late": {"clusterctl move is not done.", holding(), holding(paused), true, true},
		"Seen": {"What the cache has will do.", holding(paused), holding(), true, true},
		"None": {"There is no such Cluster.", holding(), holding(), false, false},
	} {
		cluster, isPaused, err := workload.ClusterOf(t.Context(), tc.cached, tc.live, sm, "lab")
		if err != nil || isPaused != tc.paused || (cluster != nil) != tc.found {
			t.Errorf("%s: %s\ngot %v, paused %t, error %v", name, tc.reason, cluster, isPaused, err)
		}
	}
}

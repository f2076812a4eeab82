// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
)

// TestSilentLoadBalancersAndWaitingNodesAreCounted: only the leader reports the metrics.
func TestSilentLoadBalancersAndWaitingNodesAreCounted(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := expv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	balancer := func(name, of string, reachable ...metav1.ConditionStatus) *expv1.LoadBalancer {
		lb := &expv1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: name}}
		lb.Spec.ClusterName = of
		for _, status := range reachable {
			lb.Status.Conditions = []metav1.Condition{{Type: expv1.ReachableCondition, Status: status}}
		}
		return lb
	}
	node := func(name string, phases ...expv1.AttachmentPhase) *expv1.NodeAttachment {
		a := &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: name}}
		a.Spec.ClusterName = "lab"
		for i, phase := range phases {
			a.Status.LoadBalancers = append(a.Status.LoadBalancers, expv1.BalancerProgress{Name: string(rune('a' + i)), Phase: phase})
		}
		return a
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		balancer("edge", "lab", metav1.ConditionFalse), balancer("public", "lab", metav1.ConditionFalse), balancer("new", "lab"),
		balancer("other", "idle", metav1.ConditionTrue),
		node("a", expv1.PhaseUnknown, expv1.PhaseDetached), node("b", expv1.PhaseUnknown), node("c"),
	).Build()
	elected := make(chan struct{})
	c := detach.Collector{Reader: reader, Elected: elected}
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("a replica that does not lead tells %d series", n)
	}
	close(elected)
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"fivespot_load_balancers_unreachable idle farm": 0, "fivespot_load_balancers_unreachable lab farm": 2,
		"fivespot_detaching_nodes lab farm Detached": 1, "fivespot_detaching_nodes lab farm Unknown": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// couchbaseCRD is the required part of Couchbase's definition.
const couchbaseCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: couchbaseclusters.couchbase.com}
spec:
  group: couchbase.com
  scope: Namespaced
  names: {kind: CouchbaseCluster, plural: couchbaseclusters, singular: couchbasecluster, listKind: CouchbaseClusterList}
  versions:
  - name: v2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// wantMark checks the mark of Couchbase's hook for the pod db on the Namespace.
func (l *lab) wantMark(there bool) {
	l.t.Helper()
	ns := &corev1.Namespace{}
	l.must(l.Client.Get(l.ctx(), client.ObjectKey{Name: l.ns}, ns))
	if _, got := ns.Annotations[evictionv1.TrackingPrefix+l.ns+".db"]; got != there {
		l.t.Errorf("the mark on the Namespace: %t, want %t: %v", got, there, ns.Annotations)
	}
}

// TestTrackingByCouchbaseCluster marks a CouchbaseCluster that is upgraded in place, and no other.
func TestTrackingByCouchbaseCluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	if err := shared.InstallCRDs(ctx, []byte(couchbaseCRD)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		process string
		marked  bool
	}{"InPlaceUpgrade": {"InPlaceUpgrade", true}, "SwapRebalance": {"SwapRebalance", false}, "Unset": {"", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, shared, 1)
			l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingCouchbaseCluster })
			l.cordon(true, l.nodes[0])
			cluster := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "couchbase.com/v2", "kind": "CouchbaseCluster"}}
			cluster.SetNamespace(l.ns)
			cluster.SetName("cb")
			if tc.process != "" {
				l.must(unstructured.SetNestedField(cluster.Object, tc.process, "spec", "upgradeProcess"))
			}
			l.must(l.Client.Create(l.ctx(), cluster))
			l.protected("db", l.nodes[0], func(p *corev1.Pod) { p.Labels = map[string]string{"app": "couchbase", "couchbase_cluster": "cb"} })
			l.evictUntilMarked("db")
			l.must(l.Client.Get(l.ctx(), client.ObjectKeyFromObject(cluster), cluster))
			if _, got := cluster.GetAnnotations()[evictionv1.TrackingPrefix+l.ns+".db"]; got != tc.marked {
				t.Errorf("the mark: %t, want %t: %v", got, tc.marked, cluster.GetAnnotations())
			}
			l.wantAsked(true, "db")
			l.unchanged(func() { l.want(http.StatusTooManyRequests, waiting, l.evict("db")) })
		})
	}
}

// TestWhatCannotBeTracked delays no pod, and causes a warning.
func TestWhatCannotBeTracked(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingCouchbaseCluster })
	l.cordon(true, l.nodes[0])
	l.protected("without-label", l.nodes[0])
	l.protected("without-cluster", l.nodes[0], func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "couchbase", "couchbase_cluster": "nobody"}
	})
	for _, pod := range []string{"without-label", "without-cluster"} {
		told := ""
		for range 3 { // A call of the guard may time out on a busy machine. Then the client evicts again.
			out, err := l.KubectlInput(l.ctx(), `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":"`+l.ns+`","name":"`+pod+`"}}`,
				"create", "--raw", "/api/v1/namespaces/"+l.ns+"/pods/"+pod+"/eviction", "-f", "-")
			if told += fmt.Sprint(err, out); err != nil && !strings.Contains(err.Error(), "context deadline exceeded") {
				break
			}
		}
		if !strings.Contains(told, "the pod is not tracked") {
			t.Errorf("%s: people must be told: %s", pod, told)
		}
		l.wantAsked(true, pod)
	}
	edit(l, &evictionv1.ReschedulePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "couchbase"}}, func(p *evictionv1.ReschedulePolicy) {
		p.Spec.Tracking = evictionv1.TrackingNone
	})
	l.protected("off", l.nodes[0])
	l.want(http.StatusTooManyRequests, "", l.evict("off"))
	l.wantAsked(true, "off")
}

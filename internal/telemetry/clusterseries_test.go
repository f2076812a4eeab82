// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// TestClusterSeriesStartAndGo sends the events of ScheduledMachines and Clusters.
func TestClusterSeriesStartAndGo(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := func(name string) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: name}}
	}
	leaving := cluster("leaving")
	leaving.Finalizers, leaving.DeletionTimestamp = []string{"test/keep"}, new(metav1.Now())
	reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster("lab"), leaving).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if key.Name == "unread" {
				return errors.New("the cache is closed")
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	var started, removed []string
	start := telemetry.StartClusterSeries(reader, func(cluster client.ObjectKey) { started = append(started, cluster.String()) })
	of := func(cluster string) *v1alpha1.ScheduledMachine {
		return &v1alpha1.ScheduledMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: "box"}, Spec: v1alpha1.ScheduledMachineSpec{ClusterName: cluster},
		}
	}
	for _, name := range []string{"absent", "leaving", "unread"} {
		start.Create(t.Context(), event.CreateEvent{Object: of(name)}, nil)
		start.Update(t.Context(), event.UpdateEvent{ObjectOld: of(name), ObjectNew: of(name)}, nil)
	}
	if len(started) > 0 {
		t.Errorf("series of %v start", started)
	}
	start.Create(t.Context(), event.CreateEvent{Object: of("lab")}, nil)
	start.Update(t.Context(), event.UpdateEvent{ObjectOld: of("absent"), ObjectNew: of("lab")}, nil)
	start.Delete(t.Context(), event.DeleteEvent{Object: of("lab")}, nil)
	if diff := cmp.Diff([]string{"farm/lab", "farm/lab"}, started); diff != "" {
		t.Errorf("started: -want, +got:\n%s", diff)
	}
	remove := telemetry.RemoveClusterSeries(func(cluster client.ObjectKey) { removed = append(removed, cluster.String()) })
	remove.Create(t.Context(), event.CreateEvent{Object: cluster("lab")}, nil)
	remove.Update(t.Context(), event.UpdateEvent{ObjectOld: cluster("lab"), ObjectNew: leaving}, nil)
	remove.Delete(t.Context(), event.DeleteEvent{Object: cluster("lab")}, nil)
	if diff := cmp.Diff([]string{"farm/lab"}, removed); diff != "" {
		t.Errorf("removed: -want, +got:\n%s", diff)
	}
}

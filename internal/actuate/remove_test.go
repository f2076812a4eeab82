// SPDX-License-Identifier: Apache-2.0

package actuate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
)

// TestAPatchThatHangsLeavesTimeForTheDeletion covers webhooks of Machines that do not answer patches, and a slow
// deletion.
func TestAPatchThatHangsLeavesTimeForTheDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := clusterv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: "box-machine", UID: "u", Finalizers: []string{"x/y"}}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(m).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
				<-ctx.Done()
				return ctx.Err()
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				time.Sleep(10 * time.Second)
				if err := ctx.Err(); err != nil {
					return err
				}
				return c.Delete(ctx, obj, opts...)
			},
		}).Build()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), workers.Deadline)
		defer cancel()
		action := actuate.New(c).For(actuate.Intent{Reason: v1alpha1.ReclaimedByOwner, At: time.Now()})
		if gone, err := action.Remove(ctx, &children.Set{Machine: m}, children.BypassHooks); !gone || err == nil {
			t.Errorf("gone=%t, %v; want the error of the patch only", gone, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil || m.DeletionTimestamp.IsZero() {
			t.Errorf("the Machine is not deleted: %v", err)
		}
	})
}

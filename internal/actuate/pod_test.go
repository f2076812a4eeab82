// SPDX-License-Identifier: Apache-2.0

package actuate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

// TestAnEvictionNamesItsPod replaces the pod by another of the same name between the read and the write.
func TestAnEvictionNamesItsPod(t *testing.T) {
	f, a := server.Fixture(t), actuate.New(server.Client).For(actuate.Intent{Kind: audit.NodePatch})
	made := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "evicted"},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(77))},
		}
	}
	gone := func(p *corev1.Pod) { _ = f.Client.Delete(t.Context(), p, client.GracePeriodSeconds(0)) }
	read := made()
	f.Create(read)
	gone(read)
	if err := a.EvictPod(t.Context(), read); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
	other := made()
	f.Create(other)
	defer gone(other)
	if err := a.EvictPod(t.Context(), read); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if f.Read(other); other.DeletionTimestamp != nil {
		t.Error("another pod of that name was evicted")
	}
	f.Must(a.EvictPod(t.Context(), other))
	if f.Read(other); other.DeletionTimestamp == nil || *other.DeletionGracePeriodSeconds != 77 {
		t.Errorf("got %v, %v", other.DeletionTimestamp, other.DeletionGracePeriodSeconds)
	}
	f.Must(a.EvictPod(t.Context(), other))
}

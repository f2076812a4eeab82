// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestPodsAreListedInPages has an API server that does not stream lists. It respects the limit of a list, except for a
// list from its cache.
func TestPodsAreListedInPages(t *testing.T) {
	const pods = 3*pageSize + 1
	expires := false
	server := &toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit == 0 || o.Limit > pageSize || o.ResourceVersion != "" {
				t.Errorf("all pods are read at once: %+v", o)
			}
			begin, _ := strconv.Atoi(o.Continue)
			if expires && begin > 0 {
				return nil, apierrors.NewResourceExpired("the continue token has expired")
			}
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			for i := begin; i < min(begin+int(o.Limit), pods); i++ {
				list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: map[string]string{"large": "x"}}})
			}
			if next := begin + int(o.Limit); next < pods {
				list.Continue = strconv.Itoa(next)
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
			}
			if o.ResourceVersion != "7" {
				t.Errorf("the watch begins at %q", o.ResourceVersion)
			}
			return watch.NewFake(), nil
		},
	}
	informer := newInformer(server, &corev1.Pod{}, 0, toolscache.Indexers{})
	go informer.RunWithContext(t.Context())
	if !toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) || len(informer.GetStore().List()) != pods {
		t.Errorf("the informer has %d pods", len(informer.GetStore().List()))
	}
	for _, obj := range informer.GetStore().List() {
		if pod, ok := obj.(*corev1.Pod); !ok || pod.Annotations != nil {
			t.Fatalf("got %+v", obj)
		}
	}
	expires = true
	if _, err := toolscache.ToListerWatcherWithContext(inPages(server)).ListWithContext(t.Context(), metav1.ListOptions{Limit: 2 * pageSize}); err == nil {
		t.Error("half of the pods are taken for all")
	}
}

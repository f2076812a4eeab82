// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestPodsAreListedInPages has an API server that sends as many as it is asked for, and all from its cache.
func TestPodsAreListedInPages(t *testing.T) {
	const pods = 3*pageSize + 1
	fails := false
	lw := inPages(&toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		if o.Limit == 0 || o.Limit > pageSize || o.ResourceVersion != "" {
			t.Errorf("all pods are read at once: %+v", o)
		}
		begin, _ := strconv.Atoi(o.Continue)
		if fails && begin > 0 {
			return nil, errors.New("the continue token has expired")
		}
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for i := begin; i < min(begin+int(o.Limit), pods); i++ {
			list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: map[string]string{"large": "x"}}})
		}
		if next := begin + int(o.Limit); next < pods {
			list.Continue = strconv.Itoa(next)
		}
		return list, nil
	}})
	list := toolscache.ToListerWatcherWithContext(lw)
	got, err := list.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	all, ok := got.(*corev1.PodList)
	if err != nil || !ok || len(all.Items) != pods || all.ResourceVersion != "7" || all.Continue != "" {
		t.Fatalf("got %d pods, %v", len(all.Items), err)
	}
	for i := range all.Items {
		if all.Items[i].Name != fmt.Sprint(i) || all.Items[i].Annotations != nil {
			t.Fatalf("pod %d is %+v", i, all.Items[i].ObjectMeta)
		}
	}
	fails = true
	if _, err := list.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("half of the pods are taken for all")
	}
}

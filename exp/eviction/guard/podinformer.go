// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
)

// pageSize bounds the untrimmed pods in memory while the guard lists the pods of a cluster.
const pageSize = 250

// newInformer creates the informers of the guard. Only pods are listed in pages.
func newInformer(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, pods := obj.(*corev1.Pod); pods {
		lw = inPages(lw)
	}
	return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
}

// inPages lists pods in pages, and trims each page before it reads the next. Otherwise an API server without streaming
// lists would send all pods of the cluster in one response. The informer would trim them only after all had arrived.
func inPages(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
	from := toolscache.ToListerWatcherWithContext(lw)
	// FullListIfExpired stays false: a list without pages does not fit into the memory of the guard.
	pages := pager.ListPager{PageSize: pageSize, PageFn: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page, err := from.ListWithContext(ctx, o)
		if list, ok := page.(*corev1.PodList); ok {
			for i := range list.Items {
				list.Items[i] = *eviction.TrimPod(&list.Items[i])
			}
		}
		return page, err
	}}
	return &toolscache.ListWatch{
		WatchFuncWithContext: from.WatchWithContext,
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.Limit, o.ResourceVersion, o.ResourceVersionMatch = 0, "", "" // A list from its watch cache ignores the limit.
			list, _, err := pages.List(ctx, o)
			return list, err
		},
	}
}

// trimPod is the transform function of the pod informer.
func trimPod(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return eviction.TrimPod(pod), nil
	}
	return obj, nil
}

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

// pageSize is how many untrimmed pods are in memory while the guard lists the pods of a cluster.
const pageSize = 250

// newInformer makes the informers of the guard. Only pods are listed in pages.
func newInformer(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, pods := obj.(*corev1.Pod); pods {
		lw = inPages(lw)
	}
	return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
}

// inPages lists pods in pages, and trims each page before it reads the next. An API server that does not
// stream lists would send all pods of the cluster in one answer, and the informer trims them only when it has all.
func inPages(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
	from := toolscache.ToListerWatcherWithContext(lw)
	// FullListIfExpired stays false: without pages the list does not fit into the memory of the guard.
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
			o.Limit, o.ResourceVersion, o.ResourceVersionMatch = 0, "", "" // From its cache the API server sends all at once.
			list, _, err := pages.List(ctx, o)
			return list, err
		},
	}
}

// trimPod is the transform function of the informer.
func trimPod(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return eviction.TrimPod(pod), nil
	}
	return obj, nil
}

// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
)

// pageSize is how many pods are in memory as they are, while the pods of a cluster are listed.
const pageSize = 250

// newInformer makes the informers of the guard. That of pods lists them in pages.
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
	return &toolscache.ListWatch{
		WatchFuncWithContext: from.WatchWithContext,
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.Limit, o.ResourceVersion, o.ResourceVersionMatch = pageSize, "", "" // From its cache the API server sends all at once.
			all := &corev1.PodList{}
			for {
				page, err := from.ListWithContext(ctx, o)
				list, ok := page.(*corev1.PodList)
				if err != nil || !ok {
					return page, err
				}
				if err := appendTrimmed(all, list); err != nil {
					return nil, err
				}
				if o.Continue = list.Continue; o.Continue == "" {
					all.TypeMeta, all.ListMeta = list.TypeMeta, list.ListMeta
					return all, nil
				}
			}
		},
	}
}

func appendTrimmed(all, page *corev1.PodList) error {
	for i := range page.Items {
		trimmed, err := eviction.TrimPod(&page.Items[i])
		if err != nil {
			return err
		}
		if pod, ok := trimmed.(*corev1.Pod); ok {
			all.Items = append(all.Items, *pod)
		}
	}
	return nil
}

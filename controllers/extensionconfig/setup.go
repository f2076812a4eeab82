// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// one is the only request of this controller.
var one = ctrl.Request{NamespacedName: client.ObjectKey{Name: Name}}

// CacheByObject restricts the manager's cache to the ExtensionConfig fivespot. The manager's role allows no other.
func CacheByObject() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", Name)}
}

// SetupWithManager adds the controller to mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	r.Backoff, r.Serving = wake.Backoff(), mgr.GetWebhookServer().StartedChecker()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("extensionconfig").
		WatchesRawSource(source.Func(r.begin)).
		WithOptions(opts).
		Build(telemetry.Counted("extensionconfig", r))
	if err != nil {
		return fmt.Errorf("building extensionconfig controller: %w", err)
	}
	// The kind may not be installed yet. A watch at the start would fail then.
	r.watch = sync.OnceValue(func() error {
		return c.Watch(source.Kind(mgr.GetCache(), &runtimev1.ExtensionConfig{},
			&handler.TypedEnqueueRequestForObject[*runtimev1.ExtensionConfig]{},
			predicate.TypedGenerationChangedPredicate[*runtimev1.ExtensionConfig]{}))
	})
	if err := mgr.Add(manager.RunnableFunc(r.withdrawAtEnd)); err != nil {
		return err
	}
	return metrics.Registry.Register(states)
}

// begin enqueues a reconcile when the manager becomes the leader, and when its certificate is replaced.
func (r *Reconciler) begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	watcher, err := certwatcher.New(filepath.Join(r.Options.CertDir, r.Options.CertName), filepath.Join(r.Options.CertDir, r.Options.KeyName))
	if err != nil {
		return fmt.Errorf("reading certificate of the webhook server: %w", err)
	}
	watcher.RegisterCallback(func(tls.Certificate) { queue.Add(one) })
	queue.Add(one)
	go func() {
		if err := watcher.Start(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Watching certificate of the webhook server")
		}
	}()
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Command certificates replaces cert-manager on kind clusters that cannot pull its images. It issues a self-signed
// certificate for each Certificate, and writes the authority to the objects with the annotation
// cert-manager.io/inject-ca-from. It supports no other issuer, and renews no certificate: its clusters exist for an
// hour.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// retryDelay is the time between an error and the next try.
const retryDelay = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("Ending", "err", err)
		os.Exit(1) //nolint:forbidigo,gocritic // this is main, and stop has nothing to do
	}
}

// run processes all objects after any change: there are few of them.
func run(ctx context.Context) error {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 50, 100
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a run is pending already
		}
	}
	if err := watch(ctx, client, notify); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		if err := pass(ctx, client); err != nil {
			slog.Error("Looking at certificates", "err", err)
			time.AfterFunc(retryDelay, notify)
		}
	}
}

// watch calls notify after each change of a Certificate or an injectable object.
func watch(ctx context.Context, client dynamic.Interface, notify func()) error {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, r := range append(injectable, certificates) {
		_, err := factory.ForResource(r).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { notify() },
			UpdateFunc: func(any, any) { notify() },
		})
		if err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Command certificates answers one question: who signs the certificates of webhooks where
// cert-manager's images cannot be pulled? It issues what Certificates ask for, signed by
// themselves, and writes the authority to where cert-manager.io/inject-ca-from asks for
// it. It knows no other issuer and renews nothing: its clusters live for an hour.
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

// patience is between an error and the next try.
const patience = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("Ending", "err", err)
		os.Exit(1) //nolint:forbidigo,gocritic // this is main, and stop has nothing to do
	}
}

// run looks at everything whenever something changed: there is little of it.
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
		default: // it is known already
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
			time.AfterFunc(patience, notify)
		}
	}
}

// watch calls notify after each change of what there is to look at.
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

// SPDX-License-Identifier: Apache-2.0

// Command network connects the pods of different kind nodes. It replaces kindnetd and uses its manifests. It configures
// the network plugins of its node, and keeps a route to the pods of every other node. It supports neither IPv6 nor
// network policies.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// again is the interval in which every Node is processed without a change, to retry after errors.
const again = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("HOST_IP")); err != nil { //nolint:forbidigo // this is main
		slog.Error("Ending", "err", err)
		os.Exit(1) //nolint:forbidigo,gocritic // this is main, and stop has nothing to do
	}
}

// run follows the Nodes until ctx ends. self is the address of the node that it runs on.
func run(ctx context.Context, self string) error {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, again)
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { follow(o, self, connect) },
		UpdateFunc: func(_, o any) { follow(o, self, connect) },
		DeleteFunc: func(o any) { follow(o, self, disconnect) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

// follow calls do for a Node that has a pod range and an address.
func follow(o any, self string, do func(pods, address, self string) error) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	pods, address := first(node.Spec.PodCIDRs), internal(node)
	if pods == "" || address == "" {
		return
	}
	if err := do(pods, address, self); err != nil {
		slog.Error("Following Node", "Node", node.Name, "err", err)
	}
}

// connect configures the plugins of this node, or creates a route to another node.
func connect(pods, address, self string) error {
	if address == self {
		return configure(plugins, pods)
	}
	r, err := route(pods, address)
	if err != nil {
		return err
	}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("routing %s by %s: %w", pods, address, err)
	}
	return nil
}

// disconnect removes the route to a node. If another node has the pod range by now, its route has another gateway and
// stays.
func disconnect(pods, address, self string) error {
	if address == self {
		return nil
	}
	r, err := route(pods, address)
	if err != nil {
		return err
	}
	if err := netlink.RouteDel(r); err != nil && err != syscall.ESRCH { //nolint:errorlint // the package returns it bare
		return fmt.Errorf("removing the route to %s by %s: %w", pods, address, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Command kube-proxy-health runs only the health server of kube-proxy, which load balancers probe. It watches its Node
// as kube-proxy does, and needs no kernel features.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the cluster of the Node")
	name := flag.String("hostname-override", "", "the name of the Node")
	address := flag.String("healthz-bind-address", "127.0.0.1:10256", "where to serve")
	flag.Parse()
	if err := run(context.Background(), *kubeconfig, *name, *address); err != nil {
		fmt.Fprintln(os.Stderr, "kube-proxy-health:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, kubeconfig, name, address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}))
	nodes := factory.Core().V1().Nodes()
	synced := nodes.Informer().HasSynced
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced) {
		return errors.New("the Node could not be read")
	}
	server := healthcheck.NewProxyHealthServer(address, 2*time.Minute, &node{nodes.Lister(), name})
	server.Updated(corev1.IPv4Protocol)
	return server.Run(ctx)
}

// node returns the Node to the health server, nil if there is none.
type node struct {
	lister listers.NodeLister
	name   string
}

func (n *node) Node() *corev1.Node {
	found, err := n.lister.Get(n.name)
	if err != nil {
		return nil
	}
	return found
}

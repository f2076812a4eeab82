// SPDX-License-Identifier: Apache-2.0

// Command typed reads a ConfigMap and annotates a Node, as the reclaim agent does, with client-go's typed clientset.
// Its size is compared with the agent's.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "The file that names the API server.")
	node := flag.String("node-name", "", "The Node.")
	_ = flag.String("machine-id-path", "", "Not used.")
	flag.Parse()
	if err := run(*kubeconfig, *node); err != nil {
		fmt.Fprintln(os.Stderr, "typed:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(kubeconfig, node string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	configMaps := client.CoreV1().ConfigMaps("5spot-system")
	one := metav1.ListOptions{FieldSelector: "metadata.name=reclaim-agent-" + node}
	if _, err := configMaps.List(ctx, one); err != nil {
		return err
	}
	watch, err := configMaps.Watch(ctx, one)
	if err != nil {
		return err
	}
	defer watch.Stop()
	patch := []byte(`[{"op":"add","path":"/metadata/annotations/bench","value":"true"}]`)
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

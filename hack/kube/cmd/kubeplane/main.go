// SPDX-License-Identifier: Apache-2.0

// Command kubeplane is etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl in one
// binary. Its name, or its first argument, selects the command. The commands share most of their code, so one binary
// builds and links in a fraction of the time.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	etcdmain "go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	// for their side effects: JSON logs and client metrics
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name == "kubeplane" {
		if len(args) == 0 {
			fmt.Fprintln(os.Stderr, "usage: kubeplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kubectl [flags]")
			os.Exit(2) //nolint:forbidigo // this is main
		}
		name, args = args[0], args[1:]
	}
	os.Args = append([]string{name}, args...)
	var cmd *cobra.Command
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		cmd = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		cmd = controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		cmd = scheduler.NewSchedulerCommand()
	case "kubelet":
		cmd = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		cmd = kubectl.NewDefaultKubectlCommand()
	default:
		fmt.Fprintf(os.Stderr, "kubeplane: unknown command %q\n", name)
		os.Exit(2) //nolint:forbidigo // this is main
	}
	os.Exit(cli.Run(cmd)) //nolint:forbidigo // this is main
}

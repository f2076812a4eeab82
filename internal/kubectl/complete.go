// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// completeNames completes the names of ScheduledMachines in the namespace.
func completeNames(config clientcmd.ClientConfig) cobra.CompletionFunc {
	return completeObjects(config, func(m v1alpha1.ScheduledMachine) string { return m.Name })
}

// completeClusters completes the names of their Clusters.
func completeClusters(config clientcmd.ClientConfig) cobra.CompletionFunc {
	return completeObjects(config, func(m v1alpha1.ScheduledMachine) string { return m.Spec.ClusterName })
}

// completeObjects completes one property of the ScheduledMachines in the namespace. A person who may not list them gets
// no completion.
func completeObjects(config clientcmd.ClientConfig, property func(v1alpha1.ScheduledMachine) string) cobra.CompletionFunc {
	return complete(config, func(ctx context.Context, c *cluster) []string {
		objects, _ := c.list(ctx)
		return convert(objects, property)
	})
}

func complete(config clientcmd.ClientConfig, values func(context.Context, *cluster) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := connect(Options{}, config)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := slices.DeleteFunc(values(cmd.Context(), c), func(v string) bool { return slices.Contains(given, v) })
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlags registers completion for the flags that several commands share.
func completeFlags(root *cobra.Command, config clientcmd.ClientConfig) {
	utilruntime.Must(root.RegisterFlagCompletionFunc("namespace", complete(config, namespaces)))
	utilruntime.Must(root.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		raw, err := config.RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}))
	for _, cmd := range root.Commands() {
		if flag := cmd.Flags().Lookup("output"); flag != nil {
			output, _ := flag.Value.(*format)
			utilruntime.Must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.of, cobra.ShellCompDirectiveNoFileComp)))
		}
		if cmd.Name() == "rails" || cmd.Name() == "undo-delete" {
			utilruntime.Must(cmd.RegisterFlagCompletionFunc("cluster", completeClusters(config)))
		}
	}
}

// namespaces returns the names of all namespaces, none if the person may not list them.
func namespaces(ctx context.Context, c *cluster) []string {
	list, _ := c.metadata(ctx, corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	return convert(list, func(n metav1.PartialObjectMetadata) string { return n.Name })
}

// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

type railsOptions struct {
	cluster string
	output  format
}

func newRails(o Options, config clientcmd.ClientConfig) *cobra.Command {
	r := railsOptions{output: textOr(wide, asJSON)}
	cmd := &cobra.Command{
		Use:   "rails",
		Short: "Show what the safety rails keep of each Cluster, why, and what leaves",
		Example: `  kubectl 5spot rails
  kubectl 5spot rails -A
  kubectl 5spot rails --cluster prod`,
		Args: cobra.NoArgs,
		RunE: onCluster(o, config, r.run),
	}
	flags := cmd.Flags()
	flags.BoolP("all-namespaces", "A", false, "show the Clusters of all namespaces")
	flags.StringVar(&r.cluster, "cluster", "", "only the Clusters of this `NAME`") // hides the kubeconfig's flag
	flags.VarP(&r.output, "output", "o", r.output.all())
	return cmd
}

func (r *railsOptions) run(ctx context.Context, c *cluster, _ []string) error {
	objects, err := c.list(ctx)
	if err != nil {
		return listForbiddenHelp(err)
	}
	machines, unread := c.metadata(ctx, clusterv1.GroupVersion.WithKind("MachineList"), client.InNamespace(c.namespace), client.HasLabels{v1alpha1.ScheduledMachineLabel})
	unread = failed("listing machines", unread)
	if apierrors.IsForbidden(unread) {
		return listForbiddenHelp(unread)
	}
	if r.cluster != "" {
		objects = slices.DeleteFunc(objects, func(m v1alpha1.ScheduledMachine) bool { return m.Spec.ClusterName != r.cluster })
		machines = slices.DeleteFunc(machines, func(m metav1.PartialObjectMetadata) bool { return m.Labels[clusterv1.ClusterNameLabel] != r.cluster })
	}
	now := c.Now().Truncate(time.Second)
	return errors.Join(r.show(c, railsOf(objects, machines, unread == nil, now), now), unread)
}

// listForbiddenHelp adds alternatives to a Forbidden error, which names the missing permission.
func listForbiddenHelp(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w; rails needs the permission list on ScheduledMachines and on Machines: "+
		"for a namespace in which you have both, add -n NAMESPACE; for one machine, use kubectl 5spot why NAME", err)
}

// show prints the views, also if the Machines could not be read.
func (r *railsOptions) show(c *cluster, views []clusterRails, now time.Time) error {
	switch {
	case r.output.value == asJSON:
		return writeJSON(c.Out, views, "  ")
	case len(views) == 0:
		where := ""
		if r.cluster != "" {
			where = " of Cluster " + r.cluster
		}
		return write(c.Err, "No ScheduledMachines found"+where+c.inNamespace()+".\n")
	}
	texts := convert(views, func(v clusterRails) string { return v.text(r.output.value == wide, now) })
	return write(c.Out, strings.Join(texts, "\n"))
}

// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

type statusOptions struct {
	allNamespaces bool
	output        format
}

func newStatus(o Options, config clientcmd.ClientConfig) *cobra.Command {
	s := statusOptions{output: textOr(wide, asJSON)}
	cmd := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show what scheduled machines do, what happens next and why",
		Example: `  kubectl 5spot status
  kubectl 5spot status -A
  kubectl 5spot status -o wide
  kubectl 5spot status office-hours`,
		ValidArgsFunction: completeNames(config),
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) > 0 && s.allNamespaces {
				return errors.New("a NAME is in one namespace: give either NAME or --all-namespaces")
			}
			return nil
		},
		RunE: onCluster(o, config, s.run),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "list the machines of all namespaces")
	flags.VarP(&s.output, "output", "o", s.output.all())
	return cmd
}

func (s *statusOptions) run(ctx context.Context, c *cluster, names []string) error {
	objects, err := s.read(ctx, c, names)
	if err != nil {
		return err
	}
	now := c.Now().Truncate(time.Second)
	views := convert(objects, func(m v1alpha1.ScheduledMachine) view { return explain(&m, now).view })
	switch {
	case s.output.value == asJSON:
		return writeJSON(c.Out, views, "  ")
	case len(views) == 0:
		return write(c.Err, "No ScheduledMachines found"+c.inNamespace()+".\n")
	case len(names) == 0:
		return write(c.Out, table(views, s.allNamespaces, s.output.value == wide, now))
	}
	details := convert(views, func(v view) string { return v.detail(now) })
	return write(c.Out, strings.Join(details, "\n"))
}

func (s *statusOptions) read(ctx context.Context, c *cluster, names []string) ([]v1alpha1.ScheduledMachine, error) {
	if len(names) > 0 {
		return c.get(ctx, names)
	}
	return c.list(ctx)
}

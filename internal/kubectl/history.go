// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

func newHistory(o Options, config clientcmd.ClientConfig) *cobra.Command {
	output := textOr(asJSON)
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show when a machine was given back, why, and how fast",
		Long: fmt.Sprintf(`Show when a machine was given back, why, and how fast.

CPU and MEMORY are the times until the owner had these back, if spec.reclaimHold
asks for that, or how many pods still ran: from the match of a program, or from
when the agent saw the request of a person. MACHINE is the time until the Machine
was deleted, and FREE until the machine had left the cluster. The latest %d times
are kept.`, v1alpha1.MaxGiveBacks),
		Example: `  kubectl 5spot history office-hours
  kubectl 5spot history office-hours -o json`,
		ValidArgsFunction: completeNames(config),
		Args:              oneName,
		RunE: onCluster(o, config, func(ctx context.Context, c *cluster, names []string) error {
			return showHistory(ctx, c, names[0], output.value == asJSON)
		}),
	}
	cmd.Flags().VarP(&output, "output", "o", output.all())
	return cmd
}

// pastGiveBack is a give-back in the output of history. Its JSON is an API.
type pastGiveBack struct {
	request
	Hold      *v1alpha1.HoldReport `json:"hold,omitempty"`
	DeletedAt string               `json:"deletedAt,omitempty"`
	FreeAt    string               `json:"freeAt,omitempty"`
}

func showHistory(ctx context.Context, c *cluster, name string, inJSON bool) error {
	objects, err := c.get(ctx, []string{name})
	if err != nil {
		return err
	}
	list := objects[0].GiveBacks()
	past, rows := make([]pastGiveBack, len(list)), [][]string{{"REQUESTED", "CPU", "MEMORY", "MACHINE", "FREE", "WHY"}}
	for i, g := range list {
		times := giveBack{g}
		past[i] = pastGiveBack{requestOf(g.ReclaimRecord), g.Hold, g.DeletedAt, g.ServedAt}
		rows = append(rows, []string{
			cmp.Or(g.RequestedAt, g.StoredAt, g.SeenAt, "-"), orDash(cmp.Or(times.stillRunning(), times.cpu())), orDash(times.memory()), orDash(times.deleted()), orDash(times.free()),
			cmp.Or(program(g.ReclaimRecord), sentence(g.ReclaimRecord)),
		})
	}
	switch {
	case inJSON:
		return writeJSON(c.Out, past, "  ")
	case len(list) == 0:
		return write(c.Err, name+" was not given back yet, as far as is recorded.\n")
	default:
		return write(c.Out, fitted(rows, terminal))
	}
}

// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

type planOptions struct {
	files  []string
	at     instant
	length span
	output format
}

func newPlan(o Options, config clientcmd.ClientConfig) *cobra.Command {
	p := planOptions{length: span(7 * 24 * time.Hour), output: textOr(asJSON)}
	cmd := &cobra.Command{
		Use:   "plan {-f FILE | NAME...}",
		Short: "Show when windows open and close",
		Long: `Show when the windows of ScheduledMachines open and close.

With -f nothing but the files is read: no cluster is needed. The answer is that
of the schedule alone. An unreadable schedule is reported as the API would, with
exit code 2, so plan also checks the schedules of files, and no other field.`,
		Example: `  kubectl 5spot plan -f office-hours.yaml
  kubectl 5spot plan -f - --at 2025-03-08T00:00:00Z --for 2w < office-hours.yaml
  kubectl 5spot plan office-hours --for 36h -o json`,
		Args: func(_ *cobra.Command, names []string) error {
			if (len(names) > 0) == (len(p.files) > 0) {
				return errors.New("give either -f FILE or the NAME of a ScheduledMachine in the cluster")
			}
			return nil
		},
		ValidArgsFunction: completeNames(config),
		RunE: func(cmd *cobra.Command, names []string) error {
			return p.run(cmd.Context(), o, config, names)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&p.files, "filename", "f", nil, "YAML or JSON `file` with ScheduledMachines; - is standard input; may be repeated")
	flags.Var(&p.at, "at", "begin at this time, in RFC 3339 (default now)")
	flags.Var(&p.length, "for", "length of the plan: a whole number followed by w, d, h, m or s; at most 366d")
	flags.VarP(&p.output, "output", "o", p.output.all())
	return cmd
}

func (p *planOptions) run(ctx context.Context, o Options, config clientcmd.ClientConfig, names []string) error {
	machines, err := p.machines(ctx, o, config, names)
	if err != nil {
		return err
	}
	plans, err := p.plan(machines, cmp.Or(p.at.Time, o.Now().Truncate(time.Second)))
	if err != nil {
		return err
	}
	if p.output.value == asJSON {
		return writeJSON(o.Out, plans, "  ")
	}
	return write(o.Out, plan.Text(plans))
}

func (p *planOptions) machines(ctx context.Context, o Options, config clientcmd.ClientConfig, names []string) ([]plan.Machine, error) {
	if len(p.files) > 0 {
		return readFiles(p.files, o.In)
	}
	c, err := connect(o, config)
	if err != nil {
		return nil, err
	}
	objects, err := c.get(ctx, names)
	if err != nil {
		return nil, err
	}
	return convert(objects, func(m v1alpha1.ScheduledMachine) plan.Machine { return planned(&m) }), nil
}

// plan joins the errors of all unreadable schedules.
func (p *planOptions) plan(machines []plan.Machine, at time.Time) ([]plan.Plan, error) {
	plans := make([]plan.Plan, len(machines))
	var errs []error
	for i, m := range machines {
		var err error
		plans[i], err = plan.New(m, at, time.Duration(p.length))
		errs = append(errs, unreadable(m.Name, err))
	}
	return plans, errors.Join(errs...)
}

// unreadable adds the machine and the field to each error of a schedule.
func unreadable(name string, err error) error {
	var errs []error
	for _, bad := range schedule.FieldErrors(err) {
		errs = append(errs, fmt.Errorf("%s: spec.schedule.%w", name, bad))
	}
	return errors.Join(errs...)
}

// planned converts a ScheduledMachine to the input of package plan.
func planned(m *v1alpha1.ScheduledMachine) plan.Machine {
	return plan.Machine{
		Name:       m.Name,
		Schedule:   machineschedule.Of(m),
		Enabled:    m.ScheduleEnabled(),
		KillSwitch: m.Spec.KillSwitch,
		Paused:     paused(m),
	}
}

// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
)

func newResume(o Options, config clientcmd.ClientConfig) *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME",
		Short: "Lend a machine again: turn its schedule on",
		Long: `Lend a machine again: turn its schedule on, and say what follows and when.

If the schedule is on already, nothing is written. A paused machine does not join
before somebody unpauses it. While the machine is still being
given back, or its kill switch is on, the command refuses, with exit code 1.

If the ScheduledMachine was deleted while its owner had the machine, the command
deletes the ReclaimedMachine that remembers this. A new ScheduledMachine of that
name, or for that host, then follows its schedule.`,
		Example:           `  kubectl 5spot resume office-hours`,
		ValidArgsFunction: completeNames(config),
		Args:              oneName,
		RunE:              onCluster(o, config, resume),
	}
}

// oneName accepts exactly one machine, so that a command never changes an unintended one.
func oneName(_ *cobra.Command, names []string) error {
	if len(names) != 1 {
		return errors.New("give the NAME of one ScheduledMachine")
	}
	return nil
}

func resume(ctx context.Context, c *cluster, names []string) error {
	name, now := names[0], c.Now().Truncate(time.Second)
	var before *v1alpha1.ScheduledMachine
	var next string
	after, err := c.change(ctx, name, func(m *v1alpha1.ScheduledMachine) error {
		before = m.DeepCopy()
		if err := checkResumable(m); err != nil {
			return err
		}
		var err error
		if next, err = nextAfterResume(m, now); err == nil && !m.ScheduleEnabled() {
			turnOn(m)
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return deleteReclaimedMachine(ctx, c, name, err)
	}
	if err != nil {
		return err
	}
	result := "the schedule is on again"
	if before.ScheduleEnabled() {
		result = "the schedule is on already"
	}
	if paused(after) {
		return write(c.Out, fmt.Sprintf("%s: it is paused: the schedule is on, but nothing happens until the pause of it or its Cluster ends.\n", name))
	}
	lines := []string{name + ": " + result + ". " + next}
	if r, ok := before.ServedReclaim(); ok && !before.ScheduleEnabled() && program(r) != "" {
		lines = append(lines, fmt.Sprintf("If %s still runs on the machine, the machine leaves again: quit it first.", program(r)))
	}
	return write(c.Out, strings.Join(append(lines, sentences(unservedNotes(before, now))...), "\n")+"\n")
}

// deleteReclaimedMachine deletes the ReclaimedMachine of a ScheduledMachine that is gone. It returns absent if there is
// none, or if the person may not read it.
func deleteReclaimedMachine(ctx context.Context, c *cluster, name string, absent error) error {
	reclaimed, err := c.reclaimedMachine(ctx, name)
	if err != nil {
		return errors.Join(absent, err)
	}
	if reclaimed == nil {
		return absent
	}
	why := reclaimed.Record().Screened().Why()
	if err := client.IgnoreNotFound(c.Delete(ctx, reclaimed, client.Preconditions{UID: &reclaimed.UID})); err != nil {
		return failed(name, fmt.Errorf("there is no ScheduledMachine of this name, but its owner took the machine back (%s), and its ReclaimedMachine remains: "+
			"a new ScheduledMachine stays off. To change that, a user with permission runs kubectl -n %s delete reclaimedmachine/%s: %w", why, reclaimed.Namespace, name, err))
	}
	return write(c.Out, fmt.Sprintf("%s: there is no ScheduledMachine of this name, so nothing joins. Its owner had taken the machine back (%s); "+
		"the ReclaimedMachine is deleted now, and a new ScheduledMachine follows its schedule.\n", name, why))
}

// turnOn turns the schedule on. With resumeAfterReclaim: OnResume it also removes the record of the reclaim, because
// the schedule may already be on.
func turnOn(m *v1alpha1.ScheduledMachine) {
	if m.AwaitsResume() { // Otherwise the controller removes the record.
		delete(m.Annotations, v1alpha1.ReclaimedAnnotation)
	}
	m.Spec.Schedule.Enabled = new(true)
}

// checkResumable returns an error if turning the schedule on would have no effect, or would be undone.
func checkResumable(m *v1alpha1.ScheduledMachine) error {
	switch {
	case !m.DeletionTimestamp.IsZero():
		return failed(m.Name, errors.New("it is being deleted: create a new ScheduledMachine to lend the machine again"))
	case m.BeingReclaimed():
		return failed(m.Name, errors.New("it is still being given back, and at the end its schedule is turned off: try again after that"))
	case m.Spec.KillSwitch:
		return failed(m.Name, fmt.Errorf("spec.killSwitch is true, so nothing runs in any window: %s first", killSwitchOff(m)))
	default:
		return nil
	}
}

// killSwitchOff returns the command that turns the kill switch off.
func killSwitchOff(m *v1alpha1.ScheduledMachine) string {
	return fmt.Sprintf(`kubectl -n %s patch scheduledmachine/%s --type merge -p '{"spec":{"killSwitch":false}}'`, m.Namespace, m.Name)
}

// nextAfterResume returns the schedule's next change once it is on.
func nextAfterResume(m *v1alpha1.ScheduledMachine, now time.Time) (string, error) {
	wanted := planned(m)
	wanted.Enabled = true
	p, err := plan.New(wanted, now, plan.Longest)
	if err != nil {
		return "", unreadable(m.Name, err)
	}
	effect := "joins now"
	if m.ScheduleEnabled() && m.Status.MachineRef != nil {
		effect = "is lent"
	}
	switch {
	case p.Active && len(p.Transitions) == 0:
		return fmt.Sprintf("Its window is open and does not close: the machine %s.", effect), nil
	case p.Active:
		return fmt.Sprintf("Its window is open: the machine %s, and leaves %s.", effect, p.Transitions[0].Local), nil
	case len(p.Transitions) == 0:
		return "Its window does not open within a year: nothing joins.", nil
	default:
		return fmt.Sprintf("The machine joins when its window opens: %s.", p.Transitions[0].Local), nil
	}
}

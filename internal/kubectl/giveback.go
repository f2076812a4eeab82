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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

type giveBackOptions struct {
	reason  string
	wait    bool
	timeout span
}

func newGiveBack(o Options, config clientcmd.ClientConfig) *cobra.Command {
	g := giveBackOptions{timeout: span(5 * time.Minute)}
	cmd := &cobra.Command{
		Use:   "give-back NAME",
		Short: "Give a machine back to its owner, now",
		Long: `Give a machine back to its owner, now.

It leaves the cluster without drain: what the cluster runs on it is lost. Then its
schedule is turned off, so that it stays away until it is lent again with resume.
This is what also happens when the owner starts a program of killIfCommands.
No access to the workload cluster is needed, and there is no confirmation.

A machine that is not in the cluster just now is given back all the same: its
schedule is turned off. One that is being given back, or has been, is left alone.

While the machine or its Cluster is paused, the request is recorded, and served after
the pause. The exit code is 1, or the command waits with --wait.`,
		Example: `  kubectl 5spot give-back office-hours
  kubectl 5spot give-back office-hours --reason "fire drill" --wait`,
		Args: func(cmd *cobra.Command, names []string) error {
			if r := g.request("", time.Time{}); r != r.Screened() {
				return errors.New("--reason: write one line of at most 237 printable characters, without trailing spaces")
			}
			return oneName(cmd, names)
		},
		ValidArgsFunction: completeNames(config),
		RunE:              onCluster(o, config, g.run),
	}
	flags := cmd.Flags()
	flags.StringVar(&g.reason, "reason", "", "reason to record: `text` of one line")
	flags.BoolVar(&g.wait, "wait", false, "show every step until the machine is given back")
	flags.Var(&g.timeout, "timeout", "how long to wait; the request stands after that")
	return cmd
}

func (g *giveBackOptions) request(node string, at time.Time) v1alpha1.ReclaimRecord {
	return v1alpha1.PersonsRequest(node, g.reason, at)
}

func (g *giveBackOptions) run(ctx context.Context, c *cluster, names []string) error {
	var before *v1alpha1.ScheduledMachine
	name := names[0]
	after, err := c.change(ctx, name, func(m *v1alpha1.ScheduledMachine) error {
		before = m.DeepCopy()
		if m.BeingReclaimed() || givenBack(m) {
			return nil
		}
		node := ptr.Deref(m.Status.NodeRef, v1alpha1.NodeReference{}).Name
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, g.request(node, c.Now()).String())
		return nil
	})
	if err != nil {
		return err
	}
	done := givenBack(before)
	lines := append([]string{firstLine(before)}, sentences(unservedNotes(before, c.Now().Truncate(time.Second)))...)
	if paused(after) && !done {
		if !g.wait {
			return failed(name, errPaused)
		}
		lines = []string{name + ": " + errPaused.Error() + "."}
	}
	if err := write(c.Out, strings.Join(lines, "\n")+"\n"); err != nil || done || !g.wait {
		return err
	}
	return g.await(ctx, c, after)
}

// errPaused reports a request that is recorded and not served, because the machine or its Cluster is paused.
var errPaused = errors.New("requested, but it or its Cluster is paused: not even its owner's request is served until the pause ends")

// sentences turns each note into a sentence on its own line.
func sentences(notes []string) []string {
	return convert(notes, func(n string) string { return "But " + n + "." })
}

// givenBack reports whether the machine is out of the cluster, its schedule off, and no request open.
func givenBack(m *v1alpha1.ScheduledMachine) bool {
	return !m.BeingReclaimed() && !m.ScheduleEnabled() && gone(m)
}

// firstLine is the first line that give-back prints. before is the object before the request.
func firstLine(before *v1alpha1.ScheduledMachine) string {
	name := before.Name
	if r, requested := before.ReclaimRequest(); requested {
		return name + ": it is being given back already: " + sentence(r) + "."
	}
	switch {
	case givenBack(before):
		return name + ": nothing to give back: it has no machine in the cluster, and " + offNow(before) + "."
	case gone(before):
		return name + ": asked. It has no machine in the cluster now; its schedule is turned off, so that none joins."
	default:
		return name + ": asked. When 5-Spot sees it, the machine leaves the cluster, without drain; then its schedule is turned off."
	}
}

// await prints each step of the reclaim until it ends or the timeout passes. seen is the latest version of the object.
func (g *giveBackOptions) await(ctx context.Context, c *cluster, seen *v1alpha1.ScheduledMachine) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(g.timeout))
	defer cancel()
	name, last, shown := seen.Name, "there was no progress", map[string]bool{}
	err := c.follow(ctx, name, func(m *v1alpha1.ScheduledMachine) (bool, error) {
		if m != nil {
			seen = m
		}
		step, done, err := progress(m)
		if err != nil {
			return false, failed(name, err)
		}
		var lines []string
		for _, line := range append(returnedStages(m), step) {
			if !shown[line] {
				shown[line] = true
				lines = append(lines, c.Now().Format(time.TimeOnly)+"  "+line)
			}
		}
		last = step
		if done {
			lines = append(lines, sentences(sharedHostNotes(m))...)
		}
		if len(lines) == 0 {
			return done, nil
		}
		return done, write(c.Out, strings.Join(append(lines, ""), "\n"))
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failed(name, fmt.Errorf("not given back after %s, but the request stands: %s; see kubectl 5spot why %s",
			&g.timeout, strings.Join(slices.Concat([]string{last}, removalDelayNotes(seen, last), unservedNotes(seen, c.Now())), "; "), name))
	}
	return err
}

// returnedStages returns what the owner has back of a machine, with the times. m may be nil.
func returnedStages(m *v1alpha1.ScheduledMachine) []string {
	if m == nil {
		return nil
	}
	r, ok := m.ReclaimRequest()
	if !ok {
		return regained(m)
	}
	return texts(slices.DeleteFunc(stages(m, r), func(s stage) bool { return !s.final }))
}

// sharedHostNotes returns a note if another ScheduledMachine claims the same host, which may then still be in the
// cluster. m may be nil.
func sharedHostNotes(m *v1alpha1.ScheduledMachine) []string {
	if c := hostClaimed(m); c != nil {
		return []string{"the host may still be in the cluster through another ScheduledMachine, see kubectl 5spot why of that one: " + c.Message}
	}
	return nil
}

// progress returns the current step of the reclaim. A nil m means that the ScheduledMachine is gone.
func progress(m *v1alpha1.ScheduledMachine) (step string, done bool, err error) {
	if m == nil {
		return "given back: the ScheduledMachine is gone", true, nil
	}
	requested := m.BeingReclaimed()
	switch {
	case requested && paused(m):
		return "the request is recorded, but the machine is paused", false, nil
	case requested && m.Status.Phase == v1alpha1.PhaseEmergencyRemove && m.Status.MachineRef != nil && m.Status.MachineRef.DeletionTimestamp == nil:
		return "the machine is being removed from the cluster", false, nil
	case requested && m.Status.Phase == v1alpha1.PhaseEmergencyRemove && !boxStage(m).final:
		return boxStage(m).text, false, nil
	case requested && m.Status.Phase == v1alpha1.PhaseEmergencyRemove:
		return "the machine is out of the cluster", false, nil
	case requested:
		return "the request is recorded", false, nil
	case m.ScheduleEnabled():
		return "", false, errors.New("the request was withdrawn, or the machine was lent again")
	case !gone(m):
		return "the schedule is off", false, nil
	default:
		return "given back: the schedule is off, and the machine has left the cluster", true, nil
	}
}

// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// A stage is a part of the machine that its owner gets back: the CPU, the memory, the Machine, the box. text says when
// it came back, or what it waits for. final means that text does not change any more.
type stage struct {
	text  string
	final bool
}

// regained returns what the owner has back of a machine, in the order in which it comes back. It returns none if the
// machine was not given back.
func regained(m *v1alpha1.ScheduledMachine) []string {
	if r, ok := m.ReclaimRequest(); ok {
		return texts(append(stages(m, r), boxStage(m)))
	}
	served, ok := m.ServedReclaim()
	list := m.GiveBacks()
	if !ok || m.ScheduleEnabled() && !m.AwaitsResume() || len(list) == 0 || !list[0].Same(served) {
		return nil
	}
	latest := giveBack{list[0]}
	if gone(m) {
		return []string{latest.times()}
	}
	latest.ServedAt = "" // The Machine was gone then, and its infrastructure is not.
	return []string{latest.times(), boxStage(m).text}
}

func texts(stages []stage) []string {
	return convert(stages, func(s stage) string { return s.text })
}

// stages returns all stages but the last of a give-back that is in progress.
func stages(m *v1alpha1.ScheduledMachine, r v1alpha1.ReclaimRecord) []stage {
	if gone(m) {
		return nil
	}
	list := holdStages(m)
	switch ref := m.Status.MachineRef; {
	case ref == nil:
	case ref.DeletionTimestamp == nil:
		list = append(list, stage{"the Machine is not deleted yet", false})
	default:
		text := "the Machine is deleted"
		if after := elapsed(r, ref.DeletionTimestamp.UTC().Format(time.RFC3339)); after != "" {
			text += " after " + after
		}
		list = append(list, stage{text, true})
	}
	return list
}

// holdStages returns the stages of a hold; none if the machine has no hold that has an effect.
func holdStages(m *v1alpha1.ScheduledMachine) []stage {
	h := m.Status.ReclaimHold
	if h == nil {
		c := conditions.Get(m, v1alpha1.OwnerProtectedCondition)
		if !m.Spec.HoldsPods() || c != nil && c.Reason == v1alpha1.HoldUnavailableReason {
			return nil
		}
		return []stage{{"the CPU is not known to be back: the agent has not reported that it holds the pods", false}}
	}
	cpu := fmt.Sprintf("the CPU is back after %s: %s frozen", milliseconds(h.FrozenAfterMilliseconds), pods(h.FrozenPods))
	if h.RunningPods > 0 {
		cpu = fmt.Sprintf("the CPU is not back: %s, %s frozen", counted(h.RunningPods, "pod still runs", "pods still run"), pods(h.FrozenPods))
	}
	list := []stage{{cpu, true}}
	held := heldPods(h)
	switch memory := milliseconds(h.KilledAfterMilliseconds); {
	case h.KilledAfterMilliseconds > 0 && h.KilledPods < held:
		list = append(list, stage{fmt.Sprintf("the memory of %s is back after %s", counted(h.KilledPods, "killed pod", "killed pods"), memory), true})
	case h.KilledAfterMilliseconds > 0:
		list = append(list, stage{fmt.Sprintf("the memory is back after %s: %s killed", memory, pods(h.KilledPods)), true})
	case held > 0 && (h.KilledPods > 0 || m.Spec.ReclaimHold == reclaim.HoldKill):
		list = append(list, stage{"the memory is not back yet: the agent is killing the pods", false})
	}
	return list
}

// heldPods returns the number of pods that the hold concerns.
func heldPods(h *v1alpha1.HoldReport) int32 { return h.FrozenPods + h.RunningPods }

// boxStage is the last stage: nothing of the cluster is on the box any more.
func boxStage(m *v1alpha1.ScheduledMachine) stage {
	switch {
	case m.Status.InfrastructureRef != nil:
		return stage{fmt.Sprintf("the box is not free yet: it waits for the provider of %s %s", m.Status.InfrastructureRef.Kind, m.Status.InfrastructureRef.Name), false}
	case m.Status.MachineRef != nil:
		return stage{"the box is not free yet: it waits for Machine " + m.Status.MachineRef.Name, false}
	default:
		return stage{"the box is free", true}
	}
}

// giveBack is a recorded give-back.
type giveBack struct{ v1alpha1.GiveBack }

// times lists the stages with their times, on one line.
func (g giveBack) times() string {
	var list []string
	if ran := g.stillRunning(); ran != "" {
		list = append(list, "CPU not back: "+ran)
	}
	for _, part := range []struct{ what, after string }{
		{"CPU", g.cpu()}, {"memory", g.memory()}, {"Machine deleted", g.deleted()}, {"box free", g.free()},
	} {
		if part.after != "" {
			list = append(list, part.what+" after "+part.after)
		}
	}
	return cmp.Or(strings.Join(list, ", "), "no times are recorded")
}

// cpu, memory, deleted and free are the times after the request until each stage, empty if unknown.
func (g giveBack) cpu() string {
	if g.Hold == nil || g.Hold.RunningPods > 0 {
		return ""
	}
	return milliseconds(g.Hold.FrozenAfterMilliseconds)
}

// stillRunning returns how many pods were not frozen in time, empty if none is known.
func (g giveBack) stillRunning() string {
	if g.Hold == nil || g.Hold.RunningPods == 0 {
		return ""
	}
	return counted(g.Hold.RunningPods, "pod still ran", "pods still ran")
}

func (g giveBack) memory() string {
	if g.Hold == nil || g.Hold.KilledAfterMilliseconds == 0 || g.Hold.KilledPods < heldPods(g.Hold) {
		return ""
	}
	return milliseconds(g.Hold.KilledAfterMilliseconds)
}

func (g giveBack) deleted() string { return elapsed(g.ReclaimRecord, g.DeletedAt) }
func (g giveBack) free() string    { return elapsed(g.ReclaimRecord, g.ServedAt) }

// elapsed returns the time from a request until an instant, empty if one is unknown. Most of these times are in whole
// seconds: the result is then in whole seconds, at least one. The clocks of two computers may differ, so that a negative
// time counts as zero.
func elapsed(r v1alpha1.ReclaimRecord, at string) string {
	from, err := time.Parse(time.RFC3339, cmp.Or(r.RequestedAt, r.StoredAt, r.SeenAt))
	until, err2 := time.Parse(time.RFC3339, at)
	if err != nil || err2 != nil {
		return ""
	}
	d := max(until.Sub(from), 0)
	if from.Nanosecond() == 0 || until.Nanosecond() == 0 {
		d = max(d.Round(time.Second), time.Second)
	}
	return lapse(d)
}

func milliseconds(n int64) string { return lapse(time.Duration(n) * time.Millisecond) }

// lapse shows milliseconds only below a second.
func lapse(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

// counted returns a number with the beginning of a sentence for one or for many.
func counted[N int | int32](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func pods(n int32) string { return counted(n, "pod is", "pods are") }

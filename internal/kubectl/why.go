// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

func newWhy(o Options, config clientcmd.ClientConfig) *cobra.Command {
	output := textOr(asJSON)
	cmd := &cobra.Command{
		Use:   "why NAME",
		Short: "Explain why a machine is where it is, and what to do about it",
		Example: `  kubectl 5spot why office-hours
  kubectl 5spot why office-hours -o json`,
		ValidArgsFunction: completeNames(config),
		Args:              oneName,
		RunE: onCluster(o, config, func(ctx context.Context, c *cluster, names []string) error {
			now := o.Now().Truncate(time.Second)
			e, err := c.explain(ctx, names[0], now)
			switch {
			case err != nil:
				return err
			case output.value == asJSON:
				return writeJSON(o.Out, e, "  ")
			default:
				return write(o.Out, e.text(now))
			}
		}),
	}
	cmd.Flags().VarP(&output, "output", "o", output.all())
	return cmd
}

// state is the state of a machine from its owner's view.
type state string

const (
	stateDeleting   state = "Deleting"   // the ScheduledMachine is being deleted
	statePaused     state = "Paused"     // no controller acts on it
	stateKillSwitch state = "KillSwitch" // removed until the kill switch is off
	stateReturning  state = "Returning"  // an emergency reclaim is in progress
	stateReturned   state = "Returned"   // an emergency reclaim has ended; the schedule is off since
	stateOff        state = "Off"        // a person or program turned the schedule off
	stateError      state = "Error"      // a step failed
	stateUnreadable state = "Unreadable" // the schedule cannot be read
	stateBlocked    state = "Blocked"    // something that the spec names is missing
	stateHeld       state = "Held"       // a rail holds it, though it should leave
	stateLeaving    state = "Leaving"    // a graceful departure
	stateWaiting    state = "Waiting"    // outside its window
	stateRunning    state = "Running"    // lent
	stateNotReady   state = "NotReady"   // in the cluster, and not healthy
	stateJoining    state = "Joining"    // on its way into the cluster
	statePending    state = "Pending"    // not evaluated yet
)

// explanation is the output of why for a ScheduledMachine. Its JSON is an API.
type explanation struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     state  `json:"state"`
	// Summary describes the state in one sentence. Cause says why. Since gives its start, nil
	// if no field of the status records it.
	Summary string       `json:"summary"`
	Cause   string       `json:"cause"`
	Since   *metav1.Time `json:"since,omitempty"`
	// Request is the owner's request that led to the state, nil if none did.
	Request *request `json:"request,omitempty"`
	// SetBy is the last writer of the setting that led to the state, nil if unknown.
	SetBy *writer.Writer `json:"setBy,omitempty"`
	// Back has what its owner has back, and what the owner waits for.
	Back []string `json:"back,omitempty"`
	// Node is the machine's Node, empty if it has none.
	Node           string       `json:"node,omitempty"`
	NextActivation *metav1.Time `json:"nextActivation,omitempty"`
	NextCleanup    *metav1.Time `json:"nextCleanup,omitempty"`
	// Actions lists what a person can do, most useful first. Notes lists further facts.
	Actions []string `json:"actions"`
	Notes   []string `json:"notes"`
	// Events are the latest Events about requests of the owner, newest first.
	Events []event `json:"events,omitempty"`

	view view
}

// request is an owner's request. RequestedAt is by the clock of the requesting computer.
type request struct {
	By          string `json:"by"` // program, person, node or unknown
	Program     string `json:"program,omitempty"`
	Reason      string `json:"reason"`
	Node        string `json:"node,omitempty"`
	RequestedAt string `json:"requestedAt,omitempty"`
}

// explain explains the ScheduledMachine with that name, or the ReclaimedMachine that remains of it.
func (c *cluster) explain(ctx context.Context, name string, now time.Time) (explanation, error) {
	objects, err := c.get(ctx, []string{name})
	if err == nil {
		e := explain(&objects[0], now)
		e.Events = c.requestEvents(ctx, &objects[0])
		return e, nil
	}
	if !apierrors.IsNotFound(err) {
		return explanation{}, err
	}
	reclaimed, unread := c.reclaimedMachine(ctx, name)
	if reclaimed == nil {
		return explanation{}, errors.Join(err, unread)
	}
	e := explanation{Namespace: reclaimed.Namespace, Name: name, Actions: []string{}, Notes: []string{}}
	e.requested(reclaimed.Record().Screened())
	e.view.idle = "its ScheduledMachine is deleted"
	e.set(stateReturned, "its ScheduledMachine was deleted while its owner had the machine: a new one of this name stays off",
		"to let a new one follow its schedule: "+e.command("resume"))
	return e, nil
}

// explain applies the rules below to the spec, the annotations and the conditions. The first rule that matches decides.
func explain(m *v1alpha1.ScheduledMachine, now time.Time) explanation {
	v := viewOf(m, now)
	e := explanation{
		Namespace: m.Namespace, Name: m.Name, Node: v.Node, NextActivation: v.NextActivation, NextCleanup: v.NextCleanup,
		Cause: v.Why, Back: v.Back, Actions: []string{}, Notes: []string{}, view: v,
	}
	for _, rule := range []func(*v1alpha1.ScheduledMachine, *explanation) bool{byPause, byOwner, byOperator, byProblem, byGate, byClock} {
		if rule(m, &e) {
			break
		}
	}
	e.view.state = e.State
	if help := waitHelp(m); help != "" && !gone(m) {
		e.Actions = append(e.Actions, help)
	}
	e.note(m, now)
	return e
}

func (e *explanation) set(s state, what string, do ...string) bool {
	e.State, e.Summary, e.Actions = s, what, append(e.Actions, do...)
	return true
}

// command returns a command line of this plugin for the machine.
func (e *explanation) command(verb string) string {
	return fmt.Sprintf("kubectl 5spot -n %s %s %s", e.Namespace, verb, e.Name)
}

func (e *explanation) requested(r v1alpha1.ReclaimRecord) {
	e.Cause = sentence(r)
	e.Request = new(requestOf(r))
}

// byPause explains an action that the manager's pause suppresses.
func byPause(m *v1alpha1.ScheduledMachine, e *explanation) bool {
	c := suppressed(m)
	if c == nil || paused(m) {
		return false
	}
	e.Cause, e.Since = c.Message, &c.LastTransitionTime
	return e.set(statePaused, "actuation is paused in the manager: nothing is done, not even for its owner",
		"ask the people who run the manager to end the pause: what is due then is done at once")
}

// byOwner explains the effect of an owner's request.
func byOwner(m *v1alpha1.ScheduledMachine, e *explanation) bool {
	if r, ok := m.ReclaimRequest(); ok && !paused(m) && !m.Spec.KillSwitch {
		e.requested(r)
		return e.set(stateReturning, "it is being given back to its owner, without drain",
			"to see every step: "+e.command("give-back")+" --wait")
	}
	r, ok := m.ServedReclaim()
	if !ok || m.ScheduleEnabled() || m.Spec.KillSwitch {
		return false
	}
	e.requested(r)
	if !gone(m) {
		return e.set(stateReturning, offNow(m)+", and the machine is still leaving", "wait, and look again")
	}
	if p := program(r); p != "" {
		e.Actions = append(e.Actions, "quit "+p+" before you lend it again, or it leaves again")
	}
	return e.set(stateReturned, "it was given back to its owner, and "+offNow(m), "to lend it again: "+e.command("resume"))
}

// byOperator explains the effect of a setting: a pause, a deletion, the kill switch, or a schedule that is off.
func byOperator(m *v1alpha1.ScheduledMachine, e *explanation) bool {
	switch {
	case paused(m):
		e.Cause = "the object has the annotation cluster.x-k8s.io/paused, or its Cluster is paused"
		e.Since = cmp.Or(changed(suppressed(m)), changed(withStatus(m, clusterv1.PausedCondition, metav1.ConditionTrue)))
		return e.set(statePaused, pausedWhy, "ask the people who run the cluster to unpause it")
	case !m.DeletionTimestamp.IsZero() && gateOf(m) != nil && !m.Spec.KillSwitch:
		return e.held(m, "its ScheduledMachine is being deleted, and a safety rail holds the machine")
	case !m.DeletionTimestamp.IsZero():
		e.Since = m.DeletionTimestamp
		return e.set(stateDeleting, "the ScheduledMachine is being deleted, and the machine leaves for good", "wait")
	case m.Spec.KillSwitch:
		e.Cause, e.SetBy = "spec.killSwitch was set", writer.Last(m.ManagedFields, killSwitchField)
		what := "the kill switch is on: the machine stays away"
		if !gone(m) {
			what = "the kill switch is on: the machine is being removed"
		}
		return e.set(stateKillSwitch, what, "to turn it off, if the person who turned it on agrees: "+killSwitchOff(m))
	case !m.ScheduleEnabled():
		e.Cause, e.SetBy = "spec.schedule.enabled was set to false", writer.Last(m.ManagedFields, writer.Enabled)
		if gone(m) {
			return e.set(stateOff, "its schedule is off, and it is not in the cluster", "to lend it again: "+e.command("resume"))
		}
		return e.set(stateOff, "its schedule is off, and the machine stays as it is",
			"to turn the schedule on again: "+e.command("resume"), "to have the machine: "+e.command("give-back"))
	default:
		return false
	}
}

// byProblem explains an obstacle: an unreadable schedule, a failed step, a host in use, or a missing object.
func byProblem(m *v1alpha1.ScheduledMachine, e *explanation) bool {
	if withStatus(m, v1alpha1.ScheduledCondition, metav1.ConditionUnknown) != nil || e.view.Schedule == unreadableSchedule {
		e.Since = conditions.GetLastTransitionTime(m, v1alpha1.ScheduledCondition)
		return e.set(stateUnreadable, "its schedule cannot be read: everything stays as it is", "correct spec.schedule")
	}
	if m.Status.Phase == v1alpha1.PhaseError {
		return e.set(stateError, "a step failed, and is retried at least every 5 minutes", "show the line Because to the people who run the cluster",
			"to have the machine meanwhile: "+e.command("give-back"))
	}
	if c := hostClaimed(m); c != nil && c.Reason != v1alpha1.ClaimedFirstReason && c.Reason != v1alpha1.DuplicateMachineIDReason && m.Status.MachineRef == nil {
		e.Cause, e.Since = c.Message, cmp.Or(changed(invalid(m)), &c.LastTransitionTime)
		return e.set(stateBlocked, "it waits for another ScheduledMachine that names the same host", "show the line Because to the people who run the cluster")
	}
	if c := invalid(m); c != nil {
		e.Cause, e.Since = c.Message, &c.LastTransitionTime
		return e.set(stateBlocked, "something that it needs is missing or has another owner", "show the line Because to the people who run the cluster")
	}
	return false
}

// byGate explains a departure that a rail holds.
func byGate(m *v1alpha1.ScheduledMachine, e *explanation) bool {
	return gateOf(m) != nil && e.held(m, "a safety rail holds its departure, and it stays in the cluster meanwhile")
}

// held explains a held machine with the message of its gate.
func (e *explanation) held(m *v1alpha1.ScheduledMachine, what string) bool {
	c := gateOf(m)
	e.Cause, e.Since = c.Message, &c.LastTransitionTime
	if c.Reason == v1alpha1.WipeQuarantineReason {
		e.Actions = append(e.Actions, fmt.Sprintf("if the machines are not meant to leave, hold all departures now: kubectl 5spot -n %s hold-departures %s", e.Namespace, m.Spec.ClusterName))
	}
	if !m.DeletionTimestamp.IsZero() {
		e.Actions = append(e.Actions, "if the deletion was a mistake: "+e.command("undo-delete"))
	}
	return e.set(stateHeld, what, fmt.Sprintf("wait; to see the others: kubectl 5spot -n %s rails --cluster %s", e.Namespace, m.Spec.ClusterName),
		"to have the machine now, without waiting: "+e.command("give-back"))
}

// byClock explains the effect of the schedule.
func byClock(m *v1alpha1.ScheduledMachine, e *explanation) bool {
	have := "to have the machine now: " + e.command("give-back")
	switch m.Status.Phase {
	case v1alpha1.PhaseActive:
		e.Since = conditions.GetLastTransitionTime(m, v1alpha1.ReadyCondition)
		switch {
		case conditions.IsTrue(m, v1alpha1.ReadyCondition) && conditions.IsFalse(m, v1alpha1.WorkloadClusterReachableCondition):
			return e.set(stateRunning, "it is lent: its window is open; its present state is unknown, as the workload cluster does not answer", have)
		case conditions.IsTrue(m, v1alpha1.ReadyCondition):
			return e.set(stateRunning, "it is lent: its window is open", have)
		case m.Status.NodeRef != nil:
			return e.set(stateNotReady, "its window is open, and it has a Node in the cluster that is not ready",
				"if this lasts, show the line Because to the people who run the cluster", have)
		default:
			e.Since = m.Status.LastScheduledTime
			return e.set(stateJoining, "its window is open, and it is joining the cluster", have)
		}
	case v1alpha1.PhaseShuttingDown:
		what := "its window is closed, and it is leaving the cluster"
		if m.Status.InSchedule {
			what = "it is leaving the cluster, although its window is open"
		}
		return e.set(stateLeaving, what, "to have it at once: "+e.command("give-back"))
	case v1alpha1.PhaseInactive:
		return e.set(stateWaiting, "its window is closed, and it is not in the cluster", "to keep it when the window opens: "+e.command("give-back"))
	default:
		return e.set(statePending, "its schedule is being evaluated", "look again in a moment")
	}
}

// changed returns when the status of a condition last changed, nil for nil.
func changed(c *metav1.Condition) *metav1.Time {
	if c == nil {
		return nil
	}
	return &c.LastTransitionTime
}

// invalid returns the condition ReferencesValid if it is false, for example for a missing Cluster, otherwise nil.
func invalid(m *v1alpha1.ScheduledMachine) *metav1.Condition {
	return withStatus(m, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse)
}

// hostClaimed returns the condition about another ScheduledMachine that names the same host, nil if there is none.
func hostClaimed(m *v1alpha1.ScheduledMachine) *metav1.Condition {
	return conditions.Get(m, v1alpha1.HostClaimedCondition)
}

// note adds the notes that apply in every state.
func (e *explanation) note(m *v1alpha1.ScheduledMachine, now time.Time) {
	if m.BeingReclaimed() && e.State != stateReturning {
		e.Notes = append(e.Notes, "its owner has asked for it, and the request is kept")
	}
	if e.State == statePaused && !m.DeletionTimestamp.IsZero() && !gone(m) {
		e.Notes = append(e.Notes, "its ScheduledMachine is being deleted: the machine leaves when the pause ends")
	}
	e.Notes = append(e.Notes, removalDelayNotes(m, e.Cause)...)
	if c := conditions.Get(m, v1alpha1.LentAgainCondition); c != nil {
		e.Notes = append(e.Notes, c.Message)
	}
	e.Notes = append(e.Notes, agentDetectionNotes(m, e.command("give-back"))...)
	for _, c := range []*metav1.Condition{hostClaimed(m), invalid(m)} {
		if c != nil && c.Message != e.Cause {
			e.Notes = append(e.Notes, c.Message)
		}
	}
	if e.view.Stale {
		e.Notes = append(e.Notes, notObserved)
	}
	e.Notes = append(e.Notes, unservedNotes(m, now)...)
}

func (e *explanation) text(now time.Time) string {
	lines := []string{
		"Machine:\t" + e.Name + " in " + e.Namespace,
		"State:\t" + string(e.State) + ": " + e.Summary,
	}
	if e.Since != nil {
		lines = append(lines, fmt.Sprintf("Since:\t%s (%s ago)", e.Since.UTC().Format(time.RFC3339), duration.HumanDuration(now.Sub(e.Since.Time))))
	}
	lines = append(lines, "Because:\t"+e.brief(e.Cause))
	if r := e.Request; r != nil {
		lines = append(lines, "Asked:\t"+cmp.Or(r.RequestedAt, "at an unknown time"))
	}
	lines = append(lines, labelled("Back:", e.Back)...)
	if w := e.SetBy; w != nil {
		lines = append(lines, "Set by:\t"+writerText(w, now))
	}
	// Without a Node of its own, it is the Node of the request that removed the machine.
	lines = append(lines, "Node:\t"+cmp.Or(e.Node, ptr.Deref(e.Request, request{}).Node, "-"))
	lines = append(lines, e.nextLines(now)...)
	lines = append(lines, labelled("Do:", e.Actions)...)
	lines = append(lines, labelled("Note:", convert(e.Notes, e.brief))...)
	events := convert(e.Events, func(v event) string { return e.brief(v.text(now)) })
	return columns(append(lines, labelled("Events:", events)...)...)
}

// writerText names the writer, and when it wrote.
func writerText(w *writer.Writer, now time.Time) string {
	if w.At == nil {
		return w.String()
	}
	return fmt.Sprintf("%s, which wrote last %s ago (%s)", w, duration.HumanDuration(now.Sub(w.At.Time)), w.At.UTC().Format(time.RFC3339))
}

// A provider may report the whole output of a command. text shows mostLines lines of it, each of at most mostBytes, so
// that Do stays on the screen.
const (
	mostLines = 3
	mostBytes = 300
)

// brief cuts a long text for the output. status shows all of it.
func (e *explanation) brief(message string) string {
	lines := strings.Split(strings.TrimRight(message, "\n"), "\n")
	left := len(lines) - mostLines
	lines = lines[:min(len(lines), mostLines)]
	for i, line := range lines {
		lines[i] = clip.To(line, mostBytes)
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("... and %d more lines: %s", left, e.command("status")))
	}
	return strings.Join(lines, "\n\t")
}

// nextLines returns the next steps of the schedule, if they have an effect.
func (e *explanation) nextLines(now time.Time) []string {
	if e.State == stateReturning { // in every one of its steps
		return []string{"Next:\tnothing: its schedule is being turned off"}
	}
	return e.view.nextLines(now)
}

// labelled puts a label before the first of some lines.
func labelled(label string, texts []string) []string {
	lines := convert(texts, func(t string) string { return "\t" + t })
	if len(lines) > 0 {
		lines[0] = label + lines[0]
	}
	return lines
}

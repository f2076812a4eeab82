// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"cmp"
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// facts are the inputs of decide. The responses of extensions are not among them: see judge.
type facts struct {
	// Deleting reports that the Machine is being deleted.
	Deleting bool
	// PreDrain and PreTerminate report which hooks of 5-Spot the Machine has.
	PreDrain, PreTerminate bool
	// Drained reports that Cluster API waits for the pre-terminate hooks.
	Drained bool
	// ClusterLeaving, NoNode and Unreachable each make all extensions and steps unnecessary. ClusterLeaving is also
	// true if the Cluster does not exist, unlike children.ClusterLeaves. Unreachable means that the kubelet stopped reporting.
	ClusterLeaving, NoNode, Unreachable bool
	// Trigger is why the Machine is being deleted.
	Trigger hooksv1.Trigger
	// Steps is the number of extensions and built-in steps that apply.
	Steps int
}

// A nextAction is the next action for a Machine.
type nextAction string

const (
	// noAction does nothing.
	noAction nextAction = "None"
	// callBeforeDrain and callBeforeTermination call extensions, and remove the hook of that phase when none
	// holds the Machine.
	callBeforeDrain       nextAction = "CallBeforeDrain"
	callBeforeTermination nextAction = "CallBeforeTermination"
	// removeHooks removes both hooks.
	removeHooks nextAction = "RemoveHooks"
	// notify notifies the extensions of an urgent deletion.
	notify nextAction = "Notify"
)

// decide returns the next action.
func decide(f facts) nextAction {
	switch {
	case !f.Deleting:
		return noAction
	case f.urgent():
		if f.PreDrain || f.PreTerminate {
			return removeHooks
		}
		return notify
	case !f.PreDrain && !f.PreTerminate:
		return noAction
	case f.ClusterLeaving, f.NoNode, f.Unreachable, f.Steps == 0:
		return removeHooks
	case f.PreDrain:
		return callBeforeDrain
	case f.Drained:
		return callBeforeTermination
	default:
		return noAction // Cluster API drains. Its status update enqueues the Machine.
	}
}

// urgent reports whether the owner's request or the kill switch removes the machine.
func (f facts) urgent() bool {
	return f.Trigger == hooksv1.TriggerKillSwitch || f.Trigger == hooksv1.TriggerEmergencyReclaim
}

// A verdict is the state of one extension or step at an instant.
type verdict struct {
	leaving.Verdict
	// call reports that the extension has to be called now.
	call bool
	// early reports that the first call is still within reportDelay. The condition is not updated yet.
	early bool
	// skip is what Cluster API does not need to wait for, as a finished extension requested.
	skip actuate.Waits
}

const (
	// firstRetry is the delay after a failed call.
	firstRetry = 5 * time.Second
	// longestRetry limits the delay that an extension may request, because its reason may end at any time.
	longestRetry = time.Minute
	// reportDelay is how long a first call may take before the condition reports it.
	reportDelay = 2 * time.Second
)

// judge returns the verdict on an extension in a phase that began at the given instant. The extension sets the
// time of its next call. No event shortens that time.
func judge(hook *v1alpha1.MachineDeletionHook, p leaving.Progress, began, now time.Time) verdict {
	response, wait, message := p.Answer, firstRetry, "no answer yet"
	switch {
	case p.LastAnswered.IsZero():
		wait = 0
	case response.Err != nil:
		message = response.Err.Error()
		if hook.Spec.FailurePolicy == v1alpha1.FailurePolicyIgnore {
			return verdict{Verdict: leaving.Verdict{Failed: true, Note: fmt.Sprintf("%s failed and is ignored: %s", hook.Name, message)}}
		}
	case response.Wait == 0:
		return verdict{skip: actuate.Waits{Drain: response.SkipDrain, VolumeDetach: response.SkipVolumeDetach}}
	default:
		wait, message = min(response.Wait, longestRetry), cmp.Or(response.Message, "the extension requested a wait")
	}
	until := p.Until(time.Duration(hook.Spec.DeadlineSeconds)*time.Second, hookclient.Timeout(hook), began, now)
	if !now.Before(until) {
		return verdict{Verdict: leaving.Verdict{Missed: true, Note: fmt.Sprintf("%s missed its deadline, spec.deadlineSeconds %d: %s", hook.Name, hook.Spec.DeadlineSeconds, message)}}
	}
	v := verdict{Verdict: leaving.Verdict{Holds: true, Again: until, Note: hook.Name + ": " + message}}
	due := p.LastAnswered.Add(wait)
	v.call = !p.Open && !now.Before(due)
	if !p.Open && due.After(now) {
		v.Again = instant.Earliest(until, due)
	}
	if report := p.FirstCall(now).Add(reportDelay); p.LastAnswered.IsZero() && now.Before(report) {
		v.early, v.Again = true, instant.Earliest(until, report)
	}
	return v
}

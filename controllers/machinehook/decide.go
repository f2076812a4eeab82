// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// facts are everything that a decision about a leaving Machine depends on, but for
// the answers of extensions.
type facts struct {
	// Deleting says that the Machine is being deleted.
	Deleting bool
	// PreDrain and PreTerminate say which of our hooks hold it.
	PreDrain, PreTerminate bool
	// Drained says that Cluster API waits for the hooks before termination.
	Drained bool
	// ClusterLeaving, NoNode and Unreachable are reasons to wait for nobody.
	ClusterLeaving, NoNode, Unreachable bool
	// Trigger is why the Machine is being deleted.
	Trigger hooksv1.Trigger
	// Extensions is how many are to be asked.
	Extensions int
}

// A step is what is to be done next for a Machine.
type step string

const (
	// rest is nothing.
	rest step = "Rest"
	// askBeforeDrain and askBeforeTermination ask extensions, and take our hook of that
	// phase off once nobody holds the Machine.
	askBeforeDrain       step = "AskBeforeDrain"
	askBeforeTermination step = "AskBeforeTermination"
	// letGo takes off all of our hooks.
	letGo step = "LetGo"
	// tell tells extensions of a Machine that waits for nobody.
	tell step = "Tell"
)

// decide is the next step.
func decide(f facts) step {
	switch {
	case !f.Deleting:
		return rest
	case f.urgent():
		if f.PreDrain || f.PreTerminate {
			return letGo
		}
		return tell
	case !f.PreDrain && !f.PreTerminate:
		return rest
	case f.ClusterLeaving, f.NoNode, f.Unreachable, f.Extensions == 0:
		return letGo
	case f.PreDrain:
		return askBeforeDrain
	case f.Drained:
		return askBeforeTermination
	default:
		return rest // Cluster API drains; its next step wakes us.
	}
}

// urgent reports whether a person or the owner takes the machine out at once.
func (f facts) urgent() bool {
	return f.Trigger == hooksv1.TriggerKillSwitch || f.Trigger == hooksv1.TriggerEmergencyReclaim
}

// A verdict is what the answer of one extension means.
type verdict struct {
	// again is when to ask again; zero says that the extension is done.
	again time.Time
	// note says what it waits for, or why it was not waited for; empty if neither.
	note string
}

const (
	// firstRetry is when an extension that failed is asked again.
	firstRetry = 5 * time.Second
	// longestRetry bounds what an extension may ask for: what it waits for may be over
	// at any time.
	longestRetry = time.Minute
)

// judge weighs an answer that came at now from an extension whose turn is over at
// until.
func judge(hook *v1alpha1.MachineDeletionHook, a *hooksv1.BeforeMachineDeleteResponse, err error, now, until time.Time) verdict {
	var wait time.Duration
	var says string
	switch {
	case err != nil:
		wait, says = firstRetry, err.Error()
		if hook.Spec.FailurePolicy == v1alpha1.FailurePolicyIgnore {
			return verdict{note: fmt.Sprintf("%s failed and is ignored: %s", hook.Name, says)}
		}
	case a.RetryAfterSeconds == 0:
		return verdict{}
	default:
		wait, says = min(time.Duration(a.RetryAfterSeconds)*time.Second, longestRetry), a.Message
	}
	if !now.Before(until) {
		return overdue(hook, says)
	}
	if says == "" {
		says = "it asks to wait"
	}
	again := now.Add(wait)
	if again.After(until) {
		again = until
	}
	return verdict{again: again, note: hook.Name + ": " + says}
}

// overdue is the verdict on an extension whose time is over.
func overdue(hook *v1alpha1.MachineDeletionHook, says string) verdict {
	return verdict{note: fmt.Sprintf("%s is not waited for any more, after spec.deadlineSeconds %d: %s", hook.Name, hook.Spec.DeadlineSeconds, says)}
}

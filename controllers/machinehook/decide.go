// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
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
	// Asked is how many extensions and steps are to be asked.
	Asked int
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
	case f.ClusterLeaving, f.NoNode, f.Unreachable, f.Asked == 0:
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

// A verdict is what is to be made of one extension at an instant.
type verdict struct {
	// ask says that it is to be asked now.
	ask bool
	// holds says that the Machine waits for it.
	holds bool
	// early says that it was asked a moment ago: an answer is worth waiting for before
	// anything is told of it.
	early bool
	// again is when time alone changes the verdict; zero is never.
	again time.Time
	// note says what it waits for, or why it was not waited for; empty if neither.
	note string
	// missed says that it was not done when its deadline passed, and failed that it failed and is
	// ignored.
	missed, failed bool
	// skip is what Cluster API need not wait for, of one that lets the Machine go.
	skip actuate.Waits
}

const (
	// firstRetry is when an extension that failed is asked again.
	firstRetry = 5 * time.Second
	// longestRetry bounds what an extension may ask for: what it waits for may be over
	// at any time.
	longestRetry = time.Minute
	// patience is how long an extension that was asked for the first time has before
	// people are told that it has not answered.
	patience = 2 * time.Second
)

// judge weighs how far an extension has come in a phase that began at the given instant.
// It is asked when it said, and not before, whatever happens meanwhile.
func judge(hook *v1alpha1.MachineDeletionHook, p leaving.Progress, began, now time.Time) verdict {
	a, wait, says := p.Answer, firstRetry, "no answer yet"
	switch {
	case p.Answered.IsZero():
		wait = 0
	case a.Err != nil:
		says = a.Err.Error()
		if hook.Spec.FailurePolicy == v1alpha1.FailurePolicyIgnore {
			return verdict{failed: true, note: fmt.Sprintf("%s failed and is ignored: %s", hook.Name, says)}
		}
	case a.Wait == 0:
		return verdict{skip: actuate.Waits{Drain: a.SkipDrain, VolumeDetach: a.SkipVolumeDetach}}
	default:
		wait, says = min(a.Wait, longestRetry), a.Says
		if says == "" {
			says = "it asks to wait"
		}
	}
	until := deadline(hook, p, began, now)
	if !now.Before(until) {
		return verdict{missed: true, note: fmt.Sprintf("%s missed its deadline, spec.deadlineSeconds %d: %s", hook.Name, hook.Spec.DeadlineSeconds, says)}
	}
	v := verdict{holds: true, again: until, note: hook.Name + ": " + says}
	due := p.Answered.Add(wait)
	v.ask = !p.Open && !now.Before(due)
	if !p.Open && due.After(now) {
		v.again = earlier(until, due)
	}
	if told := first(p, now).Add(patience); p.Answered.IsZero() && now.Before(told) {
		v.early, v.again = true, earlier(until, told)
	}
	return v
}

// deadline is when an extension holds nobody any more. A manager that comes late still gives
// it time for one call.
func deadline(hook *v1alpha1.MachineDeletionHook, p leaving.Progress, began, now time.Time) time.Time {
	return p.Until(time.Duration(hook.Spec.DeadlineSeconds)*time.Second, hookclient.Timeout(hook), began, now)
}

// first is when an extension was first asked, which is now if it never was.
func first(p leaving.Progress, now time.Time) time.Time {
	if p.Asked.IsZero() {
		return now
	}
	return p.Asked
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

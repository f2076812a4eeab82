// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"errors"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

func TestDecide(t *testing.T) {
	held := facts{Deleting: true, PreDrain: true, PreTerminate: true, Trigger: hooksv1.TriggerSchedule, Steps: 1}
	with := func(change func(*facts)) facts {
		f := held
		change(&f)
		return f
	}
	for name, tc := range map[string]struct {
		reason string
		facts  facts
		want   nextAction
	}{
		"Alive":          {"It is not being deleted.", with(func(f *facts) { f.Deleting = false }), noAction},
		"BeforeDrain":    {"Extensions come before the drain.", held, callBeforeDrain},
		"Drains":         {"Cluster API is at work.", with(func(f *facts) { f.PreDrain = false }), noAction},
		"Drained":        {"Extensions come before the end.", with(func(f *facts) { f.PreDrain, f.Drained = false, true }), callBeforeTermination},
		"DrainSkipped":   {"The first phase is not left out because Cluster API skipped its own.", with(func(f *facts) { f.Drained = true }), callBeforeDrain},
		"NoExtension":    {"One write, not two, without extensions and steps.", with(func(f *facts) { f.Steps = 0 }), removeHooks},
		"ClusterLeaving": {"Cluster API ignores hooks before a drain then, and no cluster is held up.", with(func(f *facts) { f.ClusterLeaving = true }), removeHooks},
		"NoNode":         {"There is nothing to prepare.", with(func(f *facts) { f.NoNode = true }), removeHooks},
		"Unreachable":    {"A Node that is not heard of gets no waits.", with(func(f *facts) { f.Unreachable = true }), removeHooks},
		"KillSwitch":     {"A person wants it gone.", with(func(f *facts) { f.Trigger = hooksv1.TriggerKillSwitch }), removeHooks},
		"Emergency":      {"The owner waits for no extension.", with(func(f *facts) { f.Trigger = hooksv1.TriggerEmergencyReclaim }), removeHooks},
		"EmergencyGoes":  {"Extensions are notified.", with(func(f *facts) { f.Trigger, f.PreDrain, f.PreTerminate = hooksv1.TriggerEmergencyReclaim, false, false }), notify},
		"NotOurs":        {"It has no hook of 5-Spot.", with(func(f *facts) { f.PreDrain, f.PreTerminate = false, false }), noAction},
		"OnlyDrain":      {"Its owner put one hook on it.", with(func(f *facts) { f.PreTerminate = false }), callBeforeDrain},
	} {
		if got := decide(tc.facts); got != tc.want {
			t.Errorf("%s: %s, want %s: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	lies := errors.New("certificate has expired")
	// said returns the progress of an extension that was first called 30 s ago and responded so many seconds
	// ago.
	said := func(ago time.Duration, a leaving.Response) leaving.Progress {
		return leaving.Progress{FirstCalled: at(-30), LastAnswered: at(-int(ago)), Answer: a}
	}
	open := func(p leaving.Progress) leaving.Progress { p.Open = true; return p }
	holds := leaving.Response{Wait: 7 * time.Second, Message: "3 connections"}
	for name, tc := range map[string]struct {
		reason   string
		policy   v1alpha1.FailurePolicy
		progress leaving.Progress
		// began is how many seconds ago the phase began, 30 if zero.
		began time.Duration
		want  verdict
	}{
		"New": {
			"It is called at once, and its response is awaited.", "",
			leaving.Progress{},
			0,
			verdict{call: true, early: true, Verdict: leaving.Verdict{Holds: true, Again: at(2), Note: "lb: no answer yet"}},
		},
		"Slow": {
			"People see whom the machine waits for.", "",
			leaving.Progress{FirstCalled: at(-2), Open: true},
			0,
			verdict{Verdict: leaving.Verdict{Holds: true, Again: at(30), Note: "lb: no answer yet"}},
		},
		"Silent": {
			"No answer is not waited for longer than an answer.", "",
			leaving.Progress{FirstCalled: at(-60), Open: true},
			60,
			verdict{Verdict: leaving.Verdict{Missed: true, Note: "lb missed its deadline, spec.deadlineSeconds 60: no answer yet"}},
		},
		"LetsGo": {
			"And does what it does for Cluster API.", "",
			said(0, leaving.Response{SkipDrain: true}), 0,
			verdict{skip: actuate.Waits{Drain: true}},
		},
		"LetsGoInTheEnd": {
			"An answer that came in time counts when the time is over.", "",
			said(5, leaving.Response{SkipVolumeDetach: true}), 600,
			verdict{skip: actuate.Waits{VolumeDetach: true}},
		},
		"Holds":    {"It said when.", "", said(2, holds), 0, verdict{Verdict: leaving.Verdict{Holds: true, Again: at(5), Note: "lb: 3 connections"}}},
		"Due":      {"It is called.", "", said(7, holds), 0, verdict{call: true, Verdict: leaving.Verdict{Holds: true, Again: at(30), Note: "lb: 3 connections"}}},
		"UnderWay": {"And not twice.", "", open(said(8, holds)), 0, verdict{Verdict: leaving.Verdict{Holds: true, Again: at(30), Note: "lb: 3 connections"}}},
		"NotYet":   {"Its answer is awaited, whenever it is due.", "", open(said(2, holds)), 0, verdict{Verdict: leaving.Verdict{Holds: true, Again: at(30), Note: "lb: 3 connections"}}},
		"AsksForTooLong": {
			"What it waits for may be over at any time.", "",
			said(31, leaving.Response{Wait: 1 << 30 * time.Second}), 31,
			verdict{Verdict: leaving.Verdict{Holds: true, Again: at(29), Note: "lb: the extension requested a wait"}},
		},
		"PastDeadline": {
			"It is not called after its deadline.", "",
			said(0, leaving.Response{Wait: time.Minute}), 0,
			verdict{Verdict: leaving.Verdict{Holds: true, Again: at(30), Note: "lb: the extension requested a wait"}},
		},
		"Overdue": {
			"What it does is not done: nothing is skipped for its sake.", "",
			said(7, leaving.Response{Wait: 7 * time.Second, Message: "3 connections", SkipDrain: true}), 60,
			verdict{Verdict: leaving.Verdict{Missed: true, Note: "lb missed its deadline, spec.deadlineSeconds 60: 3 connections"}},
		},
		"Fails":      {"It may come back.", "", said(2, leaving.Response{Err: lies}), 0, verdict{Verdict: leaving.Verdict{Holds: true, Again: at(3), Note: "lb: certificate has expired"}}},
		"FailsAgain": {"It is called until its deadline.", "", said(5, leaving.Response{Err: lies}), 0, verdict{call: true, Verdict: leaving.Verdict{Holds: true, Again: at(30), Note: "lb: certificate has expired"}}},
		"FailsAndPasses": {
			"Its registration says so.", v1alpha1.FailurePolicyIgnore,
			said(0, leaving.Response{Err: lies}), 0,
			verdict{Verdict: leaving.Verdict{Failed: true, Note: "lb failed and is ignored: certificate has expired"}},
		},
		"FailsTooLong": {
			"Also with the policy Fail.", v1alpha1.FailurePolicyFail,
			said(5, leaving.Response{Err: lies}), 60,
			verdict{Verdict: leaving.Verdict{Missed: true, Note: "lb missed its deadline, spec.deadlineSeconds 60: certificate has expired"}},
		},
		"Late": {
			"A manager that starts late makes one call to each extension.", "",
			leaving.Progress{},
			3600,
			verdict{call: true, early: true, Verdict: leaving.Verdict{Holds: true, Again: at(2), Note: "lb: no answer yet"}},
		},
		"LateAndSlow": {
			"And not for two.", "",
			leaving.Progress{FirstCalled: at(-10), Open: true},
			3600,
			verdict{Verdict: leaving.Verdict{Missed: true, Note: "lb missed its deadline, spec.deadlineSeconds 60: no answer yet"}},
		},
		"ClockBehind": {
			"A clock that is an hour behind the API server's adds no hour.", "",
			leaving.Progress{FirstCalled: at(-60), Open: true},
			-3540,
			verdict{Verdict: leaving.Verdict{Missed: true, Note: "lb missed its deadline, spec.deadlineSeconds 60: no answer yet"}},
		},
	} {
		hook := &v1alpha1.MachineDeletionHook{Spec: v1alpha1.MachineDeletionHookSpec{FailurePolicy: tc.policy, DeadlineSeconds: 60, TimeoutSeconds: 10}}
		hook.Name = "lb"
		if tc.began == 0 {
			tc.began = 30
		}
		if got := judge(hook, tc.progress, at(-int(tc.began)), now); got != tc.want {
			t.Errorf("%s: %+v, want %+v: %s", name, got, tc.want, tc.reason)
		}
	}
}

// TestAShortDeadline checks that a deadline shorter than the timeout also limits the only call.
func TestAShortDeadline(t *testing.T) {
	now := time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)
	hook := &v1alpha1.MachineDeletionHook{Spec: v1alpha1.MachineDeletionHookSpec{DeadlineSeconds: 1, TimeoutSeconds: 10}}
	if got, want := judge(hook, leaving.Progress{}, now, now).Again, now.Add(time.Second); !got.Equal(want) {
		t.Errorf("again at %v, want %v", got, want)
	}
}

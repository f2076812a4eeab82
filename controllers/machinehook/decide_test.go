// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"errors"
	"strings"
	"testing"
	"time"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

func TestDecide(t *testing.T) {
	held := facts{Deleting: true, PreDrain: true, PreTerminate: true, Trigger: hooksv1.TriggerSchedule, Extensions: 1}
	with := func(change func(*facts)) facts {
		f := held
		change(&f)
		return f
	}
	for name, tc := range map[string]struct {
		reason string
		facts  facts
		want   step
	}{
		"Alive":          {"Nobody deletes it.", with(func(f *facts) { f.Deleting = false }), rest},
		"BeforeDrain":    {"Extensions come before the drain.", held, askBeforeDrain},
		"Drains":         {"Cluster API is at work.", with(func(f *facts) { f.PreDrain = false }), rest},
		"Drained":        {"Extensions come before the end.", with(func(f *facts) { f.PreDrain, f.Drained = false, true }), askBeforeTermination},
		"DrainSkipped":   {"The first phase is not left out because Cluster API skipped its own.", with(func(f *facts) { f.Drained = true }), askBeforeDrain},
		"NoExtension":    {"One write, not two, where nobody asks for anything.", with(func(f *facts) { f.Extensions = 0 }), letGo},
		"ClusterLeaving": {"Cluster API ignores hooks before a drain then, and no cluster is held up.", with(func(f *facts) { f.ClusterLeaving = true }), letGo},
		"NoNode":         {"There is nothing to prepare.", with(func(f *facts) { f.NoNode = true }), letGo},
		"Unreachable":    {"A Node that is not heard of gets no waits.", with(func(f *facts) { f.Unreachable = true }), letGo},
		"KillSwitch":     {"A person wants it gone.", with(func(f *facts) { f.Trigger = hooksv1.TriggerKillSwitch }), letGo},
		"Emergency":      {"The owner waits for nobody.", with(func(f *facts) { f.Trigger = hooksv1.TriggerEmergencyReclaim }), letGo},
		"EmergencyGoes":  {"Extensions hear of it all the same.", with(func(f *facts) { f.Trigger, f.PreDrain, f.PreTerminate = hooksv1.TriggerEmergencyReclaim, false, false }), tell},
		"NotOurs":        {"Nobody put our hooks on it.", with(func(f *facts) { f.PreDrain, f.PreTerminate = false, false }), rest},
		"OnlyDrain":      {"Its owner put one hook on it.", with(func(f *facts) { f.PreTerminate = false }), askBeforeDrain},
	} {
		if got := decide(tc.facts); got != tc.want {
			t.Errorf("%s: %s, want %s: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)
	soon, past := now.Add(time.Hour), now
	ignore := v1alpha1.FailurePolicyIgnore
	lies := errors.New("certificate has expired")
	for name, tc := range map[string]struct {
		policy v1alpha1.FailurePolicy
		retry  int32
		says   string
		err    error
		until  time.Time
		again  time.Time
		note   string
	}{
		"Done":           {until: soon},
		"DoneInTheEnd":   {until: past},
		"Holds":          {retry: 7, says: "3 connections", until: soon, again: now.Add(7 * time.Second), note: "lb: 3 connections"},
		"SaysNothing":    {retry: 7, until: soon, again: now.Add(7 * time.Second), note: "lb: it asks to wait"},
		"AsksForTooLong": {retry: 1 << 30, until: soon, again: now.Add(longestRetry), note: "lb: it asks to wait"},
		"PastDeadline":   {retry: 60, until: now.Add(time.Second), again: now.Add(time.Second), note: "lb: it asks to wait"},
		"Overdue":        {retry: 7, says: "3 connections", until: past, note: "lb is not waited for any more, after spec.deadlineSeconds 60: 3 connections"},
		"Fails":          {err: lies, until: soon, again: now.Add(firstRetry), note: "lb: certificate has expired"},
		"FailsAndPasses": {policy: ignore, err: lies, until: soon, note: "lb failed and is ignored: certificate has expired"},
		"FailsTooLong":   {err: lies, until: past, note: "lb is not waited for any more, after spec.deadlineSeconds 60: certificate has expired"},
	} {
		hook := &v1alpha1.MachineDeletionHook{Spec: v1alpha1.MachineDeletionHookSpec{FailurePolicy: tc.policy, DeadlineSeconds: 60}}
		hook.Name = "lb"
		answer := &hooksv1.BeforeMachineDeleteResponse{}
		answer.SetStatus(runtimehooksv1.ResponseStatusSuccess)
		answer.SetRetryAfterSeconds(tc.retry)
		answer.SetMessage(tc.says)
		if tc.err != nil {
			answer = nil
		}
		got := judge(hook, answer, tc.err, now, tc.until)
		if !got.again.Equal(tc.again) || got.note != tc.note || strings.Contains(got.note, "  ") {
			t.Errorf("%s: again %v, %q; want %v, %q", name, got.again, got.note, tc.again, tc.note)
		}
	}
}

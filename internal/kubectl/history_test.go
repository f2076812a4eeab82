// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// holdReport is the report of an agent that froze and killed all pods.
var holdReport = &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9, KilledPods: 8, KilledAfterMilliseconds: 180}

// recorded is a served request with its times.
func recorded(r v1alpha1.ReclaimRecord, hold *v1alpha1.HoldReport) v1alpha1.GiveBack {
	at, _ := time.Parse(time.RFC3339, r.RequestedAt)
	return v1alpha1.GiveBack{ReclaimRecord: r.Served(at.Add(41 * time.Second))}.Deleted(at.Add(61*time.Millisecond), hold)
}

// givenBack adds served requests to a machine, the latest last.
func givenBack(list ...v1alpha1.GiveBack) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		reclaimed(list[len(list)-1].ReclaimRecord)(m)
		for _, g := range list {
			m.AddGiveBack(g)
		}
	}
}

func infrastructure(m *v1alpha1.ScheduledMachine) {
	m.Status.InfrastructureRef = &v1alpha1.ChildReference{Kind: "RemoteMachine", Name: "office-infra"}
}

func deletedAt(at time.Time) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func holds(hold reclaim.Hold, report *v1alpha1.HoldReport) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		m.Spec.KillIfCommands, m.Spec.ReclaimHold, m.Status.ReclaimHold = []string{"java"}, hold, report
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	precise := java
	precise.RequestedAt = "2025-01-15T16:00:00.500Z"
	m := machine("office", givenBack(recorded(ada, nil), recorded(java, &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 1204}), recorded(java, &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9, RunningPods: 1}), recorded(precise, holdReport)))
	config := cluster(t, map[string]any{path("office"): m, path("spare"): machine("spare")})
	const want = "" +
		"REQUESTED                  CPU               MEMORY   MACHINE   FREE   WHY\n" +
		"2025-01-15T16:00:00.500Z   9ms               180ms    61ms      41s    java\n" +
		"2025-01-15T14:00:00Z       1 pod still ran   -        1s        41s    java\n" +
		"2025-01-15T14:00:00Z       1s                -        1s        41s    java\n" +
		"2025-01-15T17:00:00Z       -                 -        1s        41s    asked by a person...\n"
	if diff := cmp.Diff(result{Out: want}, run("", "history", "office", config)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if got := run("", "history", "office", "-o", "json", config).Out; !strings.HasPrefix(got, `[
  {
    "by": "program",
    "program": "java",
    "reason": "process-match: java",
    "node": "worker-7",
    "requestedAt": "2025-01-15T16:00:00.500Z",
    "hold": {
      "frozenPods": 8,
      "frozenAfterMilliseconds": 9,
      "killedPods": 8,
      "killedAfterMilliseconds": 180
    },
    "deletedAt": "2025-01-15T16:00:00.561Z",
    "freeAt": "2025-01-15T16:00:41Z"
  },
`) {
		t.Errorf("got %s", got)
	}
	if diff := cmp.Diff(result{Err: "spare was not given back yet, as far as is recorded.\n"}, run("", "history", "spare", config)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestWhyAndStatusShowTheStages checks the lines of why and status.
func TestWhyAndStatusShowTheStages(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 1, 15, 14, 0, 1, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		change []func(*v1alpha1.ScheduledMachine)
		want   []string
	}{
		"NoHold": {
			"Without a hold there are no times of the CPU and the memory.",
			[]func(*v1alpha1.ScheduledMachine){withRequest(java), taking},
			[]string{"the Machine is not deleted yet", "the box is not free yet: it waits for Machine office-machine"},
		},
		"NotReported": {
			"Without a report of the agent, the CPU is not said to be back.",
			[]func(*v1alpha1.ScheduledMachine){withRequest(java), taking, holds(reclaim.HoldFreeze, nil)},
			[]string{
				"the CPU is not known to be back: the agent has not reported that it holds the pods", "the Machine is not deleted yet",
				"the box is not free yet: it waits for Machine office-machine",
			},
		},
		"Person": {
			"The agent sees the taint of the Node some seconds later.",
			[]func(*v1alpha1.ScheduledMachine){withRequest(ada), taking, holds(reclaim.HoldFreeze, nil)},
			[]string{
				"the CPU is not known to be back: the agent has not reported that it holds the pods", "the Machine is not deleted yet",
				"the box is not free yet: it waits for Machine office-machine",
			},
		},
		"Frozen": {
			"The provider is waited for.",
			[]func(*v1alpha1.ScheduledMachine){
				withRequest(java), taking, infrastructure, deletedAt(at),
				holds(reclaim.HoldKill, &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9}),
			},
			[]string{
				"the CPU is back after 9ms: 8 pods are frozen", "the memory is not back yet: the agent is killing the pods",
				"the Machine is deleted after 1s", "the box is not free yet: it waits for the provider of RemoteMachine office-infra",
			},
		},
		"Running": {
			"A pod that was not frozen uses the CPU, and the memory.",
			[]func(*v1alpha1.ScheduledMachine){
				withRequest(java), taking, infrastructure, deletedAt(at),
				holds(reclaim.HoldKill, &v1alpha1.HoldReport{
					FrozenPods: 2, FrozenAfterMilliseconds: 9, RunningPods: 1, KilledPods: 2, KilledAfterMilliseconds: 70,
				}),
			},
			[]string{
				"the CPU is not back: 1 pod still runs, 2 pods are frozen", "the memory of 2 killed pods is back after 70ms",
				"the Machine is deleted after 1s", "the box is not free yet: it waits for the provider of RemoteMachine office-infra",
			},
		},
		"ReturnedDevices": {
			"The memory of the other pods was not back before the machine had left.",
			[]func(*v1alpha1.ScheduledMachine){givenBack(recorded(java, &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9, KilledPods: 1, KilledAfterMilliseconds: 70}))},
			[]string{"CPU after 9ms, Machine deleted after 1s, box free after 41s"},
		},
		"ReturnedRunning": {
			"The CPU was not back before the machine had left.",
			[]func(*v1alpha1.ScheduledMachine){givenBack(recorded(java, &v1alpha1.HoldReport{FrozenPods: 1, FrozenAfterMilliseconds: 9, RunningPods: 2}))},
			[]string{"CPU not back: 2 pods still ran, Machine deleted after 1s, box free after 41s"},
		},
		"Devices": {
			"The memory of the others stays.",
			[]func(*v1alpha1.ScheduledMachine){
				withRequest(java), taking, infrastructure, func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef = nil },
				holds(reclaim.HoldFreeze, &v1alpha1.HoldReport{FrozenPods: 2, FrozenAfterMilliseconds: 9, KilledPods: 1, KilledAfterMilliseconds: 70}),
			},
			[]string{
				"the CPU is back after 9ms: 2 pods are frozen", "the memory of 1 killed pod is back after 70ms",
				"the box is not free yet: it waits for the provider of RemoteMachine office-infra",
			},
		},
		"Returned": {
			"All of it, with the times.",
			[]func(*v1alpha1.ScheduledMachine){givenBack(recorded(java, holdReport))},
			[]string{"CPU after 9ms, memory after 180ms, Machine deleted after 1s, box free after 41s"},
		},
		"InfrastructureStays": {
			"A provider did not finish.",
			[]func(*v1alpha1.ScheduledMachine){givenBack(recorded(java, nil)), infrastructure},
			[]string{"Machine deleted after 1s", "the box is not free yet: it waits for the provider of RemoteMachine office-infra"},
		},
		"AnotherRecord": {"It is about another time.", []func(*v1alpha1.ScheduledMachine){givenBack(recorded(ada, nil)), reclaimedKeeping(java)}, nil},
		"Resumed": {
			"It is lent.",
			[]func(*v1alpha1.ScheduledMachine){givenBack(recorded(java, nil)), func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.Enabled = new(true) }},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := cluster(t, map[string]any{path("office"): machine("office", tc.change...)})
			for _, command := range []string{"why", "status"} {
				var got []string
				_, block, _ := strings.Cut(run("", command, "office", config).Out, "\nBack:")
				for line := range strings.Lines(block) {
					if got != nil && line[0] != ' ' {
						break
					}
					got = append(got, strings.TrimSpace(line))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: %s\n-want, +got:\n%s", command, tc.reason, diff)
				}
			}
		})
	}
}

// reclaimedKeeping replaces the record of the served request only.
func reclaimedKeeping(r v1alpha1.ReclaimRecord) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) { m.Annotations[v1alpha1.ReclaimedAnnotation] = r.String() }
}

func TestGiveBackShowsTheStages(t *testing.T) {
	t.Parallel()
	frozen := &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9}
	at := now.Add(time.Second)
	server := &api{objects: map[string]any{path("office"): machine("office")}, watchEvents: []*v1alpha1.ScheduledMachine{
		machine("office", withRequest(ada), infrastructure, holds(reclaim.HoldKill, nil)),
		machine("office", withRequest(ada), infrastructure, holds(reclaim.HoldKill, frozen)),
		machine("office", withRequest(ada), infrastructure, taking, deletedAt(at), holds(reclaim.HoldKill, frozen)),
		machine("office", withRequest(ada), infrastructure, taking, deletedAt(at), holds(reclaim.HoldKill, holdReport)),
		machine("office", givenBack(recorded(ada, holdReport))),
	}}
	want := result{Out: takeBack +
		"17:00:00  the request is recorded\n" +
		"17:00:00  the CPU is back after 9ms: 8 pods are frozen\n" +
		"17:00:00  the Machine is deleted after 1s\n" +
		"17:00:00  the box is not free yet: it waits for the provider of RemoteMachine office-infra\n" +
		"17:00:00  the memory is back after 180ms: 8 pods are killed\n" +
		"17:00:00  CPU after 9ms, memory after 180ms, Machine deleted after 1s, box free after 41s\n" +
		"17:00:00  given back: the schedule is off, and the machine has left the cluster\n"}
	if diff := cmp.Diff(want, run("", "give-back", "office", "--wait", server.serve(t))); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestGiveBackShowsPodsThatRun(t *testing.T) {
	t.Parallel()
	runs := &v1alpha1.HoldReport{FrozenPods: 2, FrozenAfterMilliseconds: 9, RunningPods: 1}
	server := &api{objects: map[string]any{path("office"): machine("office")}, watchEvents: []*v1alpha1.ScheduledMachine{
		machine("office", withRequest(ada), infrastructure, holds(reclaim.HoldFreezeOnly, runs)),
		machine("office", givenBack(recorded(ada, runs))),
	}}
	want := result{Out: takeBack +
		"17:00:00  the request is recorded\n" +
		"17:00:00  the CPU is not back: 1 pod still runs, 2 pods are frozen\n" +
		"17:00:00  CPU not back: 1 pod still ran, Machine deleted after 1s, box free after 41s\n" +
		"17:00:00  given back: the schedule is off, and the machine has left the cluster\n"}
	if diff := cmp.Diff(want, run("", "give-back", "office", "--wait", server.serve(t))); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

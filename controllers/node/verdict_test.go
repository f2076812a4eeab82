// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
)

var (
	java = reclaim.ConfigFor([]string{"java"})
	idea = reclaim.ConfigFor([]string{"idea"})
)

func said(detector string, c reclaim.Config) string {
	return reclaim.AgentState{Detector: detector, Config: c.Hash()}.Text()
}

func TestDecide(t *testing.T) {
	const yes, no, open = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	// well is a machine whose agent watches.
	well := node.Facts{Wanted: java.Hash(), Node: "desk", Tried: true, Pod: true, Running: true, Ready: true, AgentState: said("netlink", java)}
	but := func(change func(f *node.Facts)) node.Facts {
		f := well
		change(&f)
		return f
	}
	gone := func(f *node.Facts) { f.Pod, f.Running, f.Ready = false, false, false }
	cases := map[string]struct {
		reason       string
		facts        node.Facts
		status       metav1.ConditionStatus
		why, message string
		keep, drop   bool
	}{
		"Listens": {reason: "It runs, with the configuration asked for.", facts: well, status: yes, why: "Watching", message: "detector netlink"},
		"Polls": {
			reason: "People are told that it is the slower way.",
			facts:  but(func(f *node.Facts) { f.AgentState = said("poll", java) }), status: yes, why: "Watching", message: "detector poll",
		},
		"NothingAsked": {reason: "No owner needs protection.", facts: but(func(f *node.Facts) { f.Wanted = "" }), drop: true},
		"NoNode":       {reason: "There is nothing to protect yet.", facts: but(func(f *node.Facts) { f.Node = "" }), drop: true},
		"Leaving":      {reason: "Its agent goes with it, as it should.", facts: but(func(f *node.Facts) { f.Leaving, f.Ready = true, false }), keep: true},
		"LeavingNodeGone": {
			reason: "What is gone is not reported.", drop: true,
			facts: but(func(f *node.Facts) { f.Leaving, f.Node = true, "" }),
		},
		"Doubtful": {
			reason: "No agent is put on a Node that is not believed, and what the machine says of it is the reason.",
			facts:  node.Facts{Wanted: java.Hash(), RejectedNode: "Machine a: b, which Machine c has, too"},
			status: open, why: "NodeRejected", message: "unknown which Node is this machine's: Machine a: b, which Machine c has, too",
		},
		"DoubtfulAndLeaving":   {reason: "Its agent is not needed any more.", facts: node.Facts{Wanted: java.Hash(), RejectedNode: "x", Leaving: true}, keep: true},
		"DoubtfulNothingAsked": {reason: "No owner needs protection.", facts: node.Facts{RejectedNode: "x"}, drop: true},
		"NotConnected": {
			reason: "What cannot be seen is unknown, whatever was seen before.", status: open, why: "NotConnected", message: "unknown whether",
			facts: but(func(f *node.Facts) { f.Disconnected, f.Failure = true, "x" }),
		},
		"Unreadable": {
			reason: "So is what cannot be listed.", status: open, why: "AgentStatusUnknown", message: "cannot be read",
			facts: but(func(f *node.Facts) { f.Unreadable, f.Pod, f.Ready = true, false, false }),
		},
		"HostChanged": {
			reason: "What is asked from there is refused, whatever the agent says.", status: no, why: "HostChanged", message: "let the machine leave and join again",
			facts: but(func(f *node.Facts) { f.Changed = "Node desk has the machine ID b, and had a first" }),
		},
		"HostChangedAndAsked": {
			reason: "The owner waits for what was refused.", status: no, why: "HostChanged", message: "Node desk has b: no request from this Node is served, because another host may have taken its name. " +
				"If the host was installed anew, let the machine leave and join again. Refused: java",
			facts: but(func(f *node.Facts) { f.Changed, f.Refused = "Node desk has b", "java" }),
		},
		"Blind": {
			reason: "It runs, and says itself that it sees nothing.", status: no, why: "CannotSeeProcesses", message: "mounted with hidepid",
			facts: but(func(f *node.Facts) { f.Ready, f.AgentState = false, said("blind", java) }),
		},
		"BlindAndReady": {
			reason: "The kubelet takes half a minute to see that a pod is not Ready.", status: no, why: "CannotSeeProcesses", message: "supplementalGroups",
			facts: but(func(f *node.Facts) { f.AgentState = said("blind", java) }),
		},
		"WasBlind": {
			reason: "What a former process said does not count.", status: no, why: "AgentNotRunning", message: "its image cannot be pulled",
			facts: but(func(f *node.Facts) {
				f.Running, f.Ready, f.AgentState, f.NotReadyReason = false, false, said("blind", java), "its image cannot be pulled"
			}),
		},
		"RepairFails": {
			reason: "An agent that watches is one, whatever else is refused.", status: yes, why: "Watching", message: "desk",
			facts: but(func(f *node.Facts) { f.Failure = "forbidden" }),
		},
		"Refused": {
			reason: "Why it is not there is what people need.", status: no, why: "AgentNotInstalled", message: "installing reclaim agent: 415",
			facts: but(func(f *node.Facts) { gone(f); f.Failure = "installing reclaim agent: 415" }),
		},
		"NotTried": {
			reason: "A manager that starts does not know yet.", keep: true,
			facts: but(func(f *node.Facts) { gone(f); f.Tried = false }),
		},
		"InstallDisabled": {
			reason: "With --agent-install=disabled a person has to install it.", status: no, why: "AgentNotInstalled", message: "apply config/reclaim-agent",
			facts: but(func(f *node.Facts) { gone(f); f.Elsewhere = true }),
		},
		"InstalledByAPerson": {
			reason: "And did.", status: yes, why: "Watching", message: "desk",
			facts: but(func(f *node.Facts) { f.Elsewhere = true }),
		},
		"NoPod": {
			reason: "The DaemonSet does not reach the Node.", status: no, why: "AgentNotRunning", message: "has no pod on Node desk",
			facts: but(gone),
		},
		"NotReady": {
			reason: "What a former process said does not count.", status: no, why: "AgentNotRunning", message: "its image cannot be pulled",
			facts: but(func(f *node.Facts) { f.Ready, f.NotReadyReason = false, "its image cannot be pulled" }),
		},
		"InstalledByAPersonNotReady": {
			reason: "It is installed.", status: no, why: "AgentNotRunning", message: "it is not scheduled",
			facts: but(func(f *node.Facts) { f.Elsewhere, f.Ready, f.NotReadyReason = true, false, "it is not scheduled" }),
		},
		"OtherPrograms": {
			reason: "The list was changed.", status: no, why: "ConfigurationPending", message: "current list",
			facts: but(func(f *node.Facts) { f.AgentState = said("netlink", idea) }),
		},
		"NoPrograms": {
			reason: "It has read no list.", status: no, why: "ConfigurationPending", message: "looks for nothing",
			facts: but(func(f *node.Facts) { f.AgentState = said("none", reclaim.Config{}) }),
		},
		"ConfigMapOfOthers": {
			reason: "It will never read ours.", status: no, why: "ConfigurationPending", message: "ConfigMap x exists",
			facts: but(func(f *node.Facts) {
				f.AgentState, f.Failure = said("none", reclaim.Config{}), "ConfigMap x exists and is not managed by 5-Spot"
			}),
		},
		"Older": {
			reason: "An agent of an older version says nothing of itself.", status: open, why: "ConfigurationUnconfirmed", message: "older than the manager",
			facts: but(func(f *node.Facts) { f.AgentState = "" }),
		},
		"Nonsense": {
			reason: "What no agent writes is nothing.", status: open, why: "ConfigurationUnconfirmed",
			facts: but(func(f *node.Facts) { f.AgentState = "detector=magic config=" + java.Hash() }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := node.Decide(tc.facts)
			if got.Keep != tc.keep || got.Drop != tc.drop || got.Status != tc.status || got.Reason != tc.why || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s\ngot %+v", tc.reason, got)
			}
		})
	}
}

func TestReportDelay(t *testing.T) {
	condition := func(status metav1.ConditionStatus) *metav1.Condition { return &metav1.Condition{Status: status} }
	lost := node.Verdict{Status: metav1.ConditionFalse, Reason: "AgentNotRunning"}
	cases := map[string]struct {
		reason   string
		verdict  node.Verdict
		reported *metav1.Condition
		want     time.Duration
	}{
		"Joins":       {"An agent takes its time to be there.", lost, nil, time.Minute},
		"Protected":   {"A join is one write.", node.Verdict{Status: metav1.ConditionTrue}, nil, 0},
		"Lost":        {"An agent that is replaced is none.", lost, condition(metav1.ConditionTrue), 15 * time.Second},
		"OtherReason": {"What is wrong may change on the way.", lost, condition(metav1.ConditionFalse), 15 * time.Second},
		"BackAgain":   {"Good news do not wait.", node.Verdict{Status: metav1.ConditionTrue}, condition(metav1.ConditionFalse), 0},
		"NoMore":      {"Another write takes it off, if there is one.", node.Verdict{Drop: true}, condition(metav1.ConditionTrue), 2 * time.Second},
	}
	for name, tc := range cases {
		if got := tc.verdict.ReportDelay(tc.reported); got != tc.want {
			t.Errorf("%s: %s\ngot %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Facts are what one look shows.
type Facts struct {
	// Wanted is the hash of what is to be looked for, empty for nothing.
	Wanted string
	// Node is the Node of the machine, empty while there is none.
	Node string
	// Doubt is why the Node that the machine names is not believed, empty unless none is.
	Doubt string
	// Leaving says that machine or Node are on their way out, or that its owner asks for
	// it: the agent has done its work.
	Leaving bool
	// Disconnected says that the workload cluster is not connected, Unreadable that the
	// Node or the agent's pods could not be read.
	Disconnected, Unreadable bool
	// Tried says that the outcome of the installation is known. Elsewhere says that
	// somebody else installs the agent, and Failure why it is not installed.
	Tried, Elsewhere bool
	Failure          string
	// Pod says that the agent has a pod on the Node, Running that its program runs, Ready
	// that the pod is Ready, and Trouble why it is not.
	Pod, Running, Ready bool
	Trouble             string
	// Said is what the Node says of its agent.
	Said string
	// Changed says that the machine IDs of host and Node differ, and why; empty if they
	// do not. Refused is the owner's request that is not served because of that.
	Changed, Refused string
}

// Verdict is what becomes of the condition.
type Verdict struct {
	// Keep leaves what was reported, and Drop takes it away.
	Keep, Drop bool
	// Status, Reason and Message are reported otherwise.
	Status          metav1.ConditionStatus
	Reason, Message string
}

type rule func(Facts) (Verdict, bool)

// rules are tried in order and the first to decide wins. An agent that watches is one,
// whatever became of a later attempt to install it.
var rules = []rule{notAsked, leaving, doubtful, unseen, hostChanged, blind, watching, notInstalled, notRunning}

// Decide says what is to be reported. It always decides.
func Decide(f Facts) Verdict {
	for _, r := range rules {
		if v, ok := r(f); ok {
			return v
		}
	}
	return unconfirmed(f)
}

func notAsked(f Facts) (Verdict, bool) {
	return Verdict{Drop: true}, f.Wanted == "" || f.Node == "" && f.Doubt == ""
}

func leaving(f Facts) (Verdict, bool) { return Verdict{Keep: true}, f.Leaving }

func doubtful(f Facts) (Verdict, bool) {
	return unknown(v1alpha1.NodeNotBelievedReason, "No agent is started for the owner, because it is unknown which Node is this machine's: "+f.Doubt), f.Doubt != ""
}

func unseen(f Facts) (Verdict, bool) {
	switch {
	case f.Disconnected:
		return unknown(v1alpha1.NotConnectedReason, "The workload cluster is not connected: it is unknown whether the agent runs"), true
	case f.Unreadable:
		return unknown(v1alpha1.AgentUnseenReason, "The Node or the agent's pods cannot be read; the log of the manager says why"), true
	default:
		return Verdict{}, false
	}
}

// hostChanged is about an owner whose requests are refused, by the manager or the agent.
func hostChanged(f Facts) (Verdict, bool) {
	if f.Changed == "" {
		return Verdict{}, false
	}
	message := f.Changed + ": no request from this Node is served, because another host may have taken its name. " +
		"If the host was installed anew, let the machine leave and join again"
	if f.Refused != "" {
		message += ". Refused: " + f.Refused
	}
	return unprotected(v1alpha1.HostChangedReason, "%s", message), true
}

// blind is about an agent that runs. Its pod is Ready for some seconds more.
func blind(f Facts) (Verdict, bool) {
	said, ok := reclaim.ParseAgentState(f.Said)
	if !f.Running || !ok || said.Detector != reclaim.BlindDetector {
		return Verdict{}, false
	}
	return unprotected(v1alpha1.CannotSeeProcessesReason, "The agent on Node %s cannot read the processes of other users, so it notices no program of the owner: "+
		"/proc of the host is mounted with hidepid, or a security module denies it; the agent's log says which. Mount /proc with gid=0 or without hidepid, "+
		"or run the agent with the group of the mount (supplementalGroups)", f.Node), true
}

func watching(f Facts) (Verdict, bool) {
	said, ok := reclaim.ParseAgentState(f.Said)
	if !f.Ready || !ok || said.Config != f.Wanted {
		return Verdict{}, false
	}
	message := fmt.Sprintf("The agent on Node %s looks for the programs of spec.killIfCommands, by detector %s", f.Node, said.Detector)
	return Verdict{Status: metav1.ConditionTrue, Reason: v1alpha1.WatchingReason, Message: message}, true
}

func notInstalled(f Facts) (Verdict, bool) {
	switch {
	case f.Ready:
		return Verdict{}, false
	case !f.Tried:
		return Verdict{Keep: true}, true // The first outcome wakes us.
	case f.Failure != "":
		return unprotected(v1alpha1.AgentNotInstalledReason, "%s", f.Failure), true
	case f.Elsewhere && !f.Pod:
		return unprotected(v1alpha1.AgentNotInstalledReason, "No pod of the agent is on Node %s, and the manager does not install it: "+
			"apply config/reclaim-agent, or start the manager with --agent-install=enabled", f.Node), true
	default:
		return Verdict{}, false
	}
}

func notRunning(f Facts) (Verdict, bool) {
	switch {
	case f.Ready:
		return Verdict{}, false
	case !f.Pod:
		return unprotected(v1alpha1.AgentNotRunningReason, "DaemonSet reclaim-agent has no pod on Node %s: "+
			"see kubectl -n %s describe daemonset reclaim-agent, in the workload cluster", f.Node, reclaim.Namespace), true
	default:
		return unprotected(v1alpha1.AgentNotRunningReason, "The agent on Node %[1]s is not Ready: %[2]s: "+
			"see kubectl -n %[3]s get pods -o yaml --field-selector spec.nodeName=%[1]s, in the workload cluster", f.Node, f.Trouble, reclaim.Namespace), true
	}
}

// unconfirmed is about an agent that is Ready.
func unconfirmed(f Facts) Verdict {
	said, ok := reclaim.ParseAgentState(f.Said)
	switch {
	case f.Failure != "":
		// Its ConfigMap may be somebody else's.
		return unprotected(v1alpha1.ConfigurationPendingReason, "The agent on Node %s has not read the list of spec.killIfCommands: %s", f.Node, f.Failure)
	case !ok:
		return unknown(v1alpha1.ConfigurationUnconfirmedReason, "The agent on Node "+f.Node+
			" runs, but does not report what it looks for: it is older than the manager; replace it")
	case said.Detector == reclaim.NoDetector:
		return unprotected(v1alpha1.ConfigurationPendingReason, "The agent on Node %s looks for nothing: it has not read the list of spec.killIfCommands", f.Node)
	default:
		return unprotected(v1alpha1.ConfigurationPendingReason, "The agent on Node %s looks for other programs: it has not read the current list of spec.killIfCommands yet", f.Node)
	}
}

func unprotected(reason, format string, args ...any) Verdict {
	return Verdict{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func unknown(reason, message string) Verdict {
	return Verdict{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

const (
	// joinsFor is how long a machine that joins may be without its agent: its pod is
	// scheduled, its image pulled, and its configuration read.
	joinsFor = time.Minute
	// recoversFor is how long it may be without it later: a pod is replaced, or a
	// configuration read.
	recoversFor = 15 * time.Second
	// dropsFor is how long a condition stays of which nothing is left to say. The
	// controller that reports what is gone takes it off in the same write.
	dropsFor = 2 * time.Second
)

// Patience is how long a verdict has to stand before it is reported, in the place of
// what was: good news are at once.
func (v Verdict) Patience(reported *metav1.Condition) time.Duration {
	switch {
	case v.Drop:
		return dropsFor
	case v.Status == metav1.ConditionTrue:
		return 0
	case reported == nil:
		return joinsFor
	default:
		return recoversFor
	}
}

// Settled reports whether a verdict is what was reported.
func (v Verdict) Settled(reported *metav1.Condition) bool {
	switch {
	case v.Keep:
		return true
	case reported == nil:
		return v.Drop
	default:
		return !v.Drop && v.Status == reported.Status && v.Reason == reported.Reason && v.Message == reported.Message
	}
}

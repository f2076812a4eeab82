// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Facts is the observed state on which Decide bases the condition.
type Facts struct {
	// Wanted is the hash of the agent's configuration, empty if it names no programs to watch for.
	Wanted string
	// Node is the Node of the machine, empty while there is none.
	Node string
	// RejectedNode is why the Node that the machine names was rejected; empty if an accepted Node exists or none is
	// named.
	RejectedNode string
	// Leaving reports that the machine or Node is being removed, or that its owner requested it. The agent has done its
	// work then.
	Leaving bool
	// Disconnected reports that the workload cluster is not connected, Unreadable that the Node or the agent's pods
	// could not be read.
	Disconnected, Unreadable bool
	// Tried reports that the result of the installation is known. Elsewhere reports that 5-Spot does not install the
	// agent. Failure is why the installation failed, empty if it did not.
	Tried, Elsewhere bool
	Failure          string
	// Staged reports that the agent gets the programs later, because many agents get new ones.
	Staged bool
	// Pod reports that the agent has a pod on the Node, Running that its container runs, Ready that the pod is Ready.
	// NotReadyReason is why it is not Ready.
	Pod, Running, Ready bool
	NotReadyReason      string
	// AgentState is the agent's state annotation on the Node.
	AgentState string
	// HoldUnavailable is why the agent cannot hold pods, empty if it can. Hold is the value of spec.reclaimHold.
	Hold, HoldUnavailable string
	// Changed is how the machine IDs of host and Node differ, empty if they do not. Refused is the owner's request that
	// is not served because of it.
	Changed, Refused string
}

// Verdict is the change of the condition OwnerProtected that Decide returns.
type Verdict struct {
	// Keep leaves the condition unchanged. Drop deletes it.
	Keep, Drop bool
	// Status, Reason and Message are the new condition if Keep and Drop are false.
	Status          metav1.ConditionStatus
	Reason, Message string
}

type rule func(Facts) (Verdict, bool)

// rules are tried in order; the first that matches decides. A watching agent counts, even if a later attempt to install
// it failed.
var rules = []rule{notWanted, leaving, nodeRejected, unseen, hostChanged, blind, watching, notInstalled, notRunning}

// Decide returns the change of the condition for the facts.
func Decide(f Facts) Verdict {
	for _, r := range rules {
		if v, ok := r(f); ok {
			return v
		}
	}
	return unconfirmed(f)
}

func notWanted(f Facts) (Verdict, bool) {
	return Verdict{Drop: true}, f.Wanted == "" || f.Node == "" && f.RejectedNode == ""
}

func leaving(f Facts) (Verdict, bool) { return Verdict{Keep: true}, f.Leaving }

func nodeRejected(f Facts) (Verdict, bool) {
	return unknown(v1alpha1.NodeRejectedReason, "No agent is started for the owner, because it is unknown which Node is this machine's: "+f.RejectedNode), f.RejectedNode != ""
}

func unseen(f Facts) (Verdict, bool) {
	switch {
	case f.Disconnected:
		return unknown(v1alpha1.NotConnectedReason, "The workload cluster is not connected: it is unknown whether the agent runs"), true
	case f.Unreadable:
		return unknown(v1alpha1.AgentStatusUnknownReason, "The Node or the agent's pods cannot be read; the manager's log has the error"), true
	default:
		return Verdict{}, false
	}
}

// hostChanged matches if the manager or the agent refuses the owner's requests.
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

// blind matches an agent that runs but cannot read processes. Its pod is still Ready for some seconds.
func blind(f Facts) (Verdict, bool) {
	state, ok := reclaim.ParseAgentState(f.AgentState)
	if !f.Running || !ok || state.Detector != reclaim.BlindDetector {
		return Verdict{}, false
	}
	return unprotected(v1alpha1.CannotSeeProcessesReason, "The agent on Node %s cannot read the processes of other users, so it notices no program of the owner: "+
		"/proc of the host is mounted with hidepid, or a security module denies it; the agent's log names it. Mount /proc with gid=0 or without hidepid, "+
		"or run the agent with the group of the mount (supplementalGroups)", f.Node), true
}

func watching(f Facts) (Verdict, bool) {
	state, ok := reclaim.ParseAgentState(f.AgentState)
	if !f.Ready || !ok || state.Config != f.Wanted {
		return Verdict{}, false
	}
	message := fmt.Sprintf("The agent on Node %s looks for the programs of spec.killIfCommands, by detector %s", f.Node, state.Detector)
	if f.HoldUnavailable != "" {
		message += fmt.Sprintf(". reclaimHold %s has no effect: %s", f.Hold, f.HoldUnavailable)
		return Verdict{Status: metav1.ConditionTrue, Reason: v1alpha1.HoldUnavailableReason, Message: message}, true
	}
	return Verdict{Status: metav1.ConditionTrue, Reason: v1alpha1.WatchingReason, Message: message}, true
}

func notInstalled(f Facts) (Verdict, bool) {
	switch {
	case f.Ready:
		return Verdict{}, false
	case !f.Tried:
		return Verdict{Keep: true}, true // The first result of the installation triggers a reconcile.
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
			"see kubectl -n %[3]s get pods -o yaml --field-selector spec.nodeName=%[1]s, in the workload cluster", f.Node, f.NotReadyReason, reclaim.Namespace), true
	}
}

// unconfirmed is the verdict for a Ready agent that no rule matched: it has not confirmed the wanted programs.
func unconfirmed(f Facts) Verdict {
	state, ok := reclaim.ParseAgentState(f.AgentState)
	switch {
	case f.Staged:
		return unprotected(v1alpha1.ConfigurationPendingReason, "The agent on Node %s looks for the earlier programs: "+
			"a change of spec.killIfCommands that adds programs to many machines reaches one part of them after the other", f.Node)
	case f.Failure != "":
		// The installation failed, for example because the ConfigMap belongs to another writer.
		return unprotected(v1alpha1.ConfigurationPendingReason, "The agent on Node %s has not read the list of spec.killIfCommands: %s", f.Node, f.Failure)
	case !ok:
		return unknown(v1alpha1.ConfigurationUnconfirmedReason, "The agent on Node "+f.Node+
			" runs, but does not report what it looks for: it is older than the manager; replace it")
	case state.Detector == reclaim.NoDetector:
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
	// joinDelay is how long a new machine may be without a working agent, while its pod is scheduled, its image pulled,
	// and its configuration read.
	joinDelay = time.Minute
	// recoverDelay is how long a later interruption may last, such as the replacement of the pod or a new
	// configuration.
	recoverDelay = 15 * time.Second
	// dropDelay delays the deletion of an obsolete condition. Package scheduledmachine usually deletes it in its own
	// status write before.
	dropDelay = 2 * time.Second
)

// ReportDelay returns how long a verdict must last before it is reported. True is reported at once.
func (v Verdict) ReportDelay(reported *metav1.Condition) time.Duration {
	switch {
	case v.Drop:
		return dropDelay
	case v.Status == metav1.ConditionTrue:
		return 0
	case reported == nil:
		return joinDelay
	default:
		return recoverDelay
	}
}

// IsReported reports whether the reported condition already shows the verdict.
func (v Verdict) IsReported(reported *metav1.Condition) bool {
	switch {
	case v.Keep:
		return true
	case reported == nil:
		return v.Drop
	default:
		return !v.Drop && v.Status == reported.Status && v.Reason == reported.Reason && v.Message == reported.Message
	}
}

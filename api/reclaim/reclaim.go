// SPDX-License-Identifier: Apache-2.0

// Package reclaim defines the interface between the controllers and the reclaim agent. It has the Node's annotations
// that request a machine back, and the name, key and format of the agent's configuration. It imports no Kubernetes
// client, and reads no processes.
package reclaim

import (
	"crypto/sha256"
	"encoding/hex"
)

// The annotations of a Node with which its agent requests the machine. They are written together; the controllers
// remove them together, last.
const (
	// RequestedAnnotation is a request for the machine if its value is exactly [RequestedValue].
	RequestedAnnotation = "5spot.finos.org/reclaim-requested"
	// ReasonAnnotation is the reason, for people. See [Reason].
	ReasonAnnotation = "5spot.finos.org/reclaim-reason"
	// RequestedAtAnnotation is the time of the request in RFC 3339 and UTC, for people.
	RequestedAtAnnotation = "5spot.finos.org/reclaim-requested-at"

	// RequestedValue is the only value of [RequestedAnnotation] that counts.
	RequestedValue = "true"
)

const (
	// HoldAnnotation on a Node reports what its agent did about the pods of the Node, for example
	// pods=3 running=1 cpu_ms=9 killed=0 memory_ms=0, or why it can do nothing, as unavailable="why".
	HoldAnnotation = "5spot.finos.org/reclaim-hold"
	// AgentLabel on a Node opts it in to the agent's DaemonSet when it is
	// [AgentLabelValue].
	AgentLabel = "5spot.finos.org/reclaim-agent"
	// AgentLabelValue is the value of [AgentLabel] that the DaemonSet selects.
	AgentLabelValue = "enabled"

	// NodeTaint is the key of the NoExecute taint on a Node whose machine is being given
	// back. It makes the Node's pods start elsewhere. An agent with a hold freezes them. A Node that
	// outlives its machine keeps it until it is lent again.
	NodeTaint = "5spot.finos.org/reclaimed-by-owner"

	// Namespace holds the agent and its ConfigMaps in the workload cluster.
	Namespace = "5spot-system"
	// ConfigMapKey is the key of the ConfigMap under which a [Config] is kept.
	ConfigMapKey = "reclaim.toml"
	// FieldManager owns the annotations that the agent writes.
	FieldManager = "5spot-reclaim-agent"

	// maxName bounds the name of an object, in bytes.
	maxName = 253
)

// ConfigMapName returns the name of the ConfigMap in [Namespace] that the agent on node reads. If the name would exceed
// the limit of Kubernetes, it contains a hash of node instead. The other prefix prevents a collision with another
// Node's name.
func ConfigMapName(node string) string {
	if name := "reclaim-agent-" + node; len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	return "reclaim-agent." + hex.EncodeToString(sum[:])
}

// Reason returns the value of [ReasonAnnotation] for a process that matched
// pattern.
func Reason(pattern string) string { return "process-match: " + pattern }

// Requested reports whether a Node's annotations request its machine back. Only the literal "true" does: an incomplete,
// empty or differently spelled value must not eject a machine.
func Requested(annotations map[string]string) bool {
	return annotations[RequestedAnnotation] == RequestedValue
}

// SPDX-License-Identifier: Apache-2.0

// Package reclaim answers what the controllers and the node agent say to each
// other: which annotations ask for a machine back, and where and in which form
// the agent finds what to look for. It knows nothing about Kubernetes clients
// or processes.
package reclaim

import (
	"crypto/sha256"
	"encoding/hex"
)

// The annotations of a Node by which its agent asks for the machine back. They
// are written together; the controllers clear them together, last.
const (
	// RequestedAnnotation asks for the machine when it is exactly
	// [RequestedValue].
	RequestedAnnotation = "5spot.finos.org/reclaim-requested"
	// ReasonAnnotation says why, for people. See [Reason].
	ReasonAnnotation = "5spot.finos.org/reclaim-reason"
	// RequestedAtAnnotation says since when, in RFC 3339 and UTC, for people.
	RequestedAtAnnotation = "5spot.finos.org/reclaim-requested-at"

	// RequestedValue is the only value of [RequestedAnnotation] that counts.
	RequestedValue = "true"
)

const (
	// AgentLabel on a Node opts it in to the agent's DaemonSet when it is
	// [AgentLabelValue].
	AgentLabel = "5spot.finos.org/reclaim-agent"
	// AgentLabelValue is the value of [AgentLabel] that the DaemonSet selects.
	AgentLabelValue = "enabled"

	// NodeTaint is the key of the NoExecute taint on a Node whose machine is being given
	// back. It makes the Node's pods start elsewhere, and is deleted with the Node.
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

// ConfigMapName returns the name of the ConfigMap in [Namespace] that the agent
// on node reads. A name that would exceed the limit of Kubernetes is a hash instead. Its prefix differs,
// so that it is the name for no other Node.
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

// Requested reports whether a Node with these annotations asks for its machine
// back. Only the literal "true" does, so that a half-written, empty or
// differently spelt value never ejects a machine.
func Requested(annotations map[string]string) bool {
	return annotations[RequestedAnnotation] == RequestedValue
}

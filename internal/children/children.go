// SPDX-License-Identifier: Apache-2.0

// Package children reads and builds the children of a ScheduledMachine: its Machine, bootstrap config and
// infrastructure machine. It determines which existing objects belong to the ScheduledMachine, and builds the
// objects that its spec describes. It writes nothing.
package children

import (
	"crypto/sha256"
	"encoding/hex"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// maxNameLength keeps the names of children valid as label values and as host names. Providers use the
// Machine's name for both.
const maxNameLength = 63

// Names are the names of the children of one ScheduledMachine.
type Names struct{ Bootstrap, Infrastructure, Machine string }

// NamesOf returns the names of the children of a ScheduledMachine called name.
func NamesOf(name string) Names {
	return Names{
		Bootstrap:      childName(name, "-bootstrap"),
		Infrastructure: childName(name, "-infra"),
		Machine:        childName(name, "-machine"),
	}
}

// childName appends suffix. If the result is too long, it truncates name and adds a hash of the full name (ADR
// 0008).
func childName(name, suffix string) string {
	if len(name)+len(suffix) <= maxNameLength {
		return name + suffix
	}
	hash := "-" + digest([]byte(name))
	return name[:maxNameLength-len(suffix)-len(hash)] + hash + suffix
}

// digest returns a short hash, which fits into a name. It is long enough to make accidental collisions unlikely.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:4])
}

// MachineKind is the kind of a Machine.
var MachineKind = clusterv1.GroupVersion.WithKind("Machine")

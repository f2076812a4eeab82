// SPDX-License-Identifier: Apache-2.0

// Package children answers two questions: which objects has a ScheduledMachine
// brought into being, and which would it bring into being now? It reads and
// builds; it writes nothing.
package children

import (
	"crypto/sha256"
	"encoding/hex"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// maxNameLength keeps the names of children usable as label values and as host
// names: providers put the Machine's name into both.
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

// childName appends suffix, and shortens name with a hash of the whole of it
// where the result would be too long (ADR 0008).
func childName(name, suffix string) string {
	if len(name)+len(suffix) <= maxNameLength {
		return name + suffix
	}
	hash := "-" + digest([]byte(name))
	return name[:maxNameLength-len(suffix)-len(hash)] + hash + suffix
}

// digest is short enough for a name and long enough not to collide by accident.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:4])
}

// MachineKind is the kind of a Machine.
var MachineKind = clusterv1.GroupVersion.WithKind("Machine")

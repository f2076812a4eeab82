// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

// A history is every phase of a ScheduledMachine, including very short ones.
type history struct{ *specs.History }

// follow records the phases of sm, which must exist. If sm was just created, it records all of them.
func (l *lab) follow(sm *v1alpha1.ScheduledMachine) history {
	l.t.Helper()
	return history{l.specs().Follow(sm)}
}

// want waits until the phases are exactly these, in this order.
func (h history) want(l *lab, phases ...v1alpha1.Phase) {
	l.t.Helper()
	h.Want(phases...)
}

// SPDX-License-Identifier: Apache-2.0

package machinehook

// WithWatchFilter returns a reconciler as SetupWithManager makes it.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}

// BecomesOurs is what wakes a Machine whose ScheduledMachine gets the label.
var BecomesOurs = becomesOurs

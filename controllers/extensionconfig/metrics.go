// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import "github.com/prometheus/client_golang/prometheus"

var states = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "fivespot_runtime_extension",
	Help: "1 for the state of the runtime extension's registration with Cluster API: Registered, Withdrawn, AddressUnknown, NotServing, NotInstalled, Refused, NameConflict, Suppressed or Failed. Reported by the leader only.",
}, []string{"state"})

// report sets the metric of state to 1, and removes all others.
func report(state State) {
	states.Reset()
	states.WithLabelValues(string(state)).Set(1)
}

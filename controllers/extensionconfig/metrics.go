// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import "github.com/prometheus/client_golang/prometheus"

var states = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "fivespot_runtime_extension",
	Help: "1 for the state of the runtime extension's registration with Cluster API: Registered, Withdrawn, AddressUnknown, NotServing, NotInstalled, Refused, NameConflict, Suppressed or Failed. Reported by the leader only.",
}, []string{"state"})

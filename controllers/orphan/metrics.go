// SPDX-License-Identifier: Apache-2.0

package orphan

import "github.com/prometheus/client_golang/prometheus"

var orphanMachines = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "fivespot_orphan_machines",
	Help: "Machines that were made for a ScheduledMachine that does not exist any more, and that are not being deleted, by namespace and Cluster. Absent for a Cluster without Machines of 5-Spot. Reported by the leader only.",
}, []string{"namespace", "cluster"})

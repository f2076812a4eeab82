// SPDX-License-Identifier: Apache-2.0

package machinehook

// DeadlinesMissed is the metric. The functions set and remove the series of a Cluster.
var (
	DeadlinesMissed     = deadlinesMissed
	StartClusterSeries  = startClusterSeries
	RemoveClusterSeries = removeClusterSeries
)

// SPDX-License-Identifier: Apache-2.0

package machinehook

// DeadlinesMissed is the metric, and ForgetCluster forgets a Cluster in it.
var (
	DeadlinesMissed = deadlinesMissed
	ForgetCluster   = forgetCluster
)

// SPDX-License-Identifier: Apache-2.0

// Package guard is the eviction guard: a webhook that the API server of a workload cluster asks
// before it evicts a pod, and the controller that takes requests back which nobody wants any more.
// Package eviction says what is answered.
package guard

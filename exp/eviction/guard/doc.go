// SPDX-License-Identifier: Apache-2.0

// Package guard implements the eviction guard. A webhook answers the API server of a workload cluster before it evicts
// a pod. A controller on one replica withdraws and deletes requests to operators. Package eviction makes the decisions.
package guard

// SPDX-License-Identifier: Apache-2.0

// Package e2e answers one question: does 5-Spot keep its promises to the people
// who use it? Its tests drive the manager that ships, with the rights that ship,
// against a real Cluster API and a real workload cluster, by the API only. It
// knows nothing about how the promises are kept.
package e2e

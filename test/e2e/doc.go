// SPDX-License-Identifier: Apache-2.0

// Package e2e tests that 5-Spot keeps its promises to users. Its tests run the released manager with the released
// permissions, a real Cluster API and a real workload cluster. They use only the API, and nothing of the
// implementation.
package e2e

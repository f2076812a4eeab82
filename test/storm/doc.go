// SPDX-License-Identifier: Apache-2.0

// Package storm tests the safety rails with controllers as they are wired in the product, simulated time, and an API
// server in memory. The test plays all other parts: Cluster API, the garbage collector, owners, and people who make the
// listed mistakes.
package storm

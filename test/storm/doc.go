// SPDX-License-Identifier: Apache-2.0

// Package storm answers one question: do the safety rails hold, whatever is done to a fleet?
// It is a test. The controllers that make machines leave, wired as they ship, run in a time of
// the test's own against an API server in memory. The test plays everybody else: Cluster API,
// the garbage collector, owners, and people who make the mistakes that it lists.
package storm

// SPDX-License-Identifier: Apache-2.0

// Package moves tests that a machine that leaves waits until operators have moved their pods, and no longer than its
// limit. It also tests how the manager installs the eviction guard, and how the guard answers Cluster API's drain. The
// guard's other answers are tested in test/eviction.
package moves

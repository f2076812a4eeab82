// SPDX-License-Identifier: Apache-2.0

// Package disaster holds the tests of the safety rails among real parts: a fleet under the
// manager as it ships, in two replicas, one mistake or outage after the other, and what undoes
// it. test/storm has many more of them, in a time of its own.
package disaster

// SPDX-License-Identifier: Apache-2.0

// Package moves answers one question: does a machine that leaves wait until operators have moved
// their pods away, and not a moment longer than it may?
//
// The eviction guard answers the drain that comes then. How it answers is for test/eviction; here is
// also how the manager installs it.
package moves

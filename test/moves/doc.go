// SPDX-License-Identifier: Apache-2.0

// Package moves answers one question: does a machine that leaves wait until operators have moved
// their pods away, and not a moment longer than it may?
package moves

// SPDX-License-Identifier: Apache-2.0

// Package fleet holds the tests of what nobody can read: 50 machines that run, and each way
// in which a provider's objects cannot be read when the manager starts. Unknown is never
// absent. It has a plane of its own, because each of them is felt by everything on it.
package fleet

// SPDX-License-Identifier: Apache-2.0

// Package lane tests that one provider's outage, or one author's objects, do not delay the reclaims of other owners'
// machines. It has its own plane, because a kind with a dead conversion webhook also stops the garbage collector.
package lane

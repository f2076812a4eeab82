// SPDX-License-Identifier: Apache-2.0

// Package lane holds the tests of what one provider's outage, or one author's objects,
// cost the owners of everybody else's machines: nothing. It has a plane of its own,
// because a kind whose conversion webhook is dead also stops the garbage collector.
package lane

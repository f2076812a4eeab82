// SPDX-License-Identifier: Apache-2.0

// Package cuts holds the tests of the judge on managers that break a promise: each is built
// with one rail cut, and runs on a plane of its own. A judge that never blames anybody
// would pass every other test.
package cuts

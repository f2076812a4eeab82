// SPDX-License-Identifier: Apache-2.0

// Package cuts tests the judge on managers that break a promise. Each manager is built without one rail, and runs on
// its own plane. Without these tests a judge that reports no breaks would pass.
package cuts

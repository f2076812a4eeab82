// SPDX-License-Identifier: Apache-2.0

// Package judge checks from the outside whether the manager and its agents kept their promises. It reads the API
// servers' audit logs and the manager's audit log, and nothing else. It shares no code with the product, not even a
// name, so that a defect there cannot hide a break here. All instants come from the logs.
//
// When a departure starts, in which lane, and which machines count for it, is computed from requests, responses and
// specs. The departure record, which the manager writes, is only evidence for the rules that are about the record.
// Schedules are not evaluated: the end of a window is the one that the status announced, if the log shows the
// announcement early enough.
//
// A fact that the logs do not show never counts as a break, with one exception: a missing request body that a rule has
// to read is a break of that rule.
package judge

// SPDX-License-Identifier: Apache-2.0

// Package judge checks from the outside whether the manager and its agents kept their promises. It reads the API
// servers' audit logs and the manager's audit log, and nothing else. It shares no code with the product, not even a
// name, so that a defect there cannot hide a break here. All instants come from the logs.
//
// A fact that the logs do not show never counts as a break, with one exception: a missing request body that a rule has
// to read is a break of that rule.
package judge

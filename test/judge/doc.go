// SPDX-License-Identifier: Apache-2.0

// Package judge answers one question: did the manager and its agents keep the promises that
// can be checked from outside? It reads what API servers recorded, and the manager's audit
// log, and nothing else. It imports nothing of what it judges, not even a name: a defect
// there must not be able to excuse itself here. Instants come from the logs.
//
// What cannot be known from the logs is not held against anybody, but for one thing: a
// request whose body the audit policy left out, where a rule has to read it, is a break of
// that rule.
package judge

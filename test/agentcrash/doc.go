// SPDX-License-Identifier: Apache-2.0

// Package agentcrash tests that a request reaches the Node once and completely, wherever the reclaim agent or its
// connection breaks. It runs the released agent with the released permissions against a real API server, through a
// proxy that injects faults.
package agentcrash

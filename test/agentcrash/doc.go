// SPDX-License-Identifier: Apache-2.0

// Package agentcrash answers one question: does a request reach the Node, once and
// whole, wherever the reclaim agent or its connection breaks? It runs the agent that
// ships against a real API server, with the rights that ship, and breaks what is
// between them.
package agentcrash

// SPDX-License-Identifier: Apache-2.0

// Package agentrights answers one question: what can somebody do who has stolen the
// token of a reclaim agent? It sends requests with real tokens to a real API server
// that has the policy and the roles that ship.
package agentrights

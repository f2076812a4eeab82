// SPDX-License-Identifier: Apache-2.0

// Package agentrights tests what an attacker with a stolen token of a reclaim agent can do. It sends requests with real
// tokens to a real API server with the released policy and roles.
package agentrights

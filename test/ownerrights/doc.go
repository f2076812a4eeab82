// SPDX-License-Identifier: Apache-2.0

// Package ownerrights answers one question: what may people do to a ScheduledMachine? It
// sends requests of people with real credentials to a real API server that has the roles
// and the policy that ship.
package ownerrights

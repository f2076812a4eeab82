// SPDX-License-Identifier: Apache-2.0

// Package ownerrights tests what people may do to a ScheduledMachine. It sends requests with real credentials to a real
// API server with the released roles and policy.
package ownerrights

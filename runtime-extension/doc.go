// SPDX-License-Identifier: Apache-2.0

// Package runtimeextension is the room of what Cluster API's Runtime SDK calls, and
// of the hooks that 5-Spot calls itself.
package runtimeextension

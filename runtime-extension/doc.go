// SPDX-License-Identifier: Apache-2.0

// Package runtimeextension holds the handlers that Cluster API's Runtime SDK calls, and the
// hooks that 5-Spot calls itself.
package runtimeextension

// SPDX-License-Identifier: Apache-2.0

// Package runtimeextension contains the handlers for hooks of Cluster API's Runtime SDK, and the hooks that 5-Spot
// defines for extensions.
package runtimeextension

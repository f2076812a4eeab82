// SPDX-License-Identifier: Apache-2.0

// Package move moves ScheduledMachines between two management clusters with clusterctl, at random moments.
package move

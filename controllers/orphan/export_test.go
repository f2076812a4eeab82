// SPDX-License-Identifier: Apache-2.0

package orphan

// The metric, and what wakes the controller.
var (
	OrphanMachines = orphanMachines
	MachineChanges = machineChanges
	Exists         = exists
)

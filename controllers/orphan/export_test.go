// SPDX-License-Identifier: Apache-2.0

package orphan

// The metric and the predicates of the controller.
var (
	OrphanMachines = orphanMachines
	MachineChanges = machineChanges
	Exists         = exists
)

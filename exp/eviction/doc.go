// SPDX-License-Identifier: Apache-2.0

// Package eviction moves pods off a Node through their operators. It reads policies, pods, Nodes and
// RescheduleRequests. It creates and patches RescheduleRequests, and marks pods for their operators. Package verdict
// makes the decisions. Two programs use this package: the manager, by Step, for the Machines of 5-Spot; and the
// eviction guard, for all other clients that drain Nodes.
package eviction

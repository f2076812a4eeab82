// SPDX-License-Identifier: Apache-2.0

// Package eviction has pods that an operator moves leave a Node by its operator's hand. It looks
// up the policy of a pod, writes down that its operator is asked, and asks. Package verdict
// decides. Two use it: the step of a departure here, for machines of 5-Spot, and the eviction guard,
// for everybody else who drains.
package eviction

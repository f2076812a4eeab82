// SPDX-License-Identifier: Apache-2.0

// Package realnode turns this machine into a Node, and later removes every trace of it. A node is a containerd and a
// kubelet in their own mount namespace, under a warden. The warden is a process that ends all of its descendants when
// its standard input closes. That happens when its parent ends, in whatever way.
package realnode

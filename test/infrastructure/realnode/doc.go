// SPDX-License-Identifier: Apache-2.0

// Package realnode answers one question: how does this machine become a Node,
// and how does it stop being one without a trace? A node is a containerd and a
// kubelet in a mount namespace of their own, under a warden: a process that ends
// everything below it when its standard input closes, which is what happens when
// its parent ends, however it ends.
package realnode

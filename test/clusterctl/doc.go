// SPDX-License-Identifier: Apache-2.0

// Package clusterctl tests what clusterctl does with a release: it runs the commands
// of docs/install.md, with the manager as the process of the identity that they
// install.
package clusterctl

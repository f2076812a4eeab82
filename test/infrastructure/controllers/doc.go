// SPDX-License-Identifier: Apache-2.0

// Package controllers implements Cluster API's contract for the infrastructure, bootstrap and control plane provider of
// the local plane. A Backend provides the Nodes.
package controllers

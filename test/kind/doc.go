// SPDX-License-Identifier: Apache-2.0

// Package kind answers one question: does 5-Spot keep its promises on real containers?
// Cluster API's test framework makes a management cluster on kind, clusterctl installs
// the release, and the specs of ../specs run in a Cluster of the Docker provider. It
// needs Docker; see docs/local-plane.md. What needs none of that is tested always.
package kind

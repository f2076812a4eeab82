// SPDX-License-Identifier: Apache-2.0

// Package kind runs the specs in ../specs on containers. Cluster API's test framework creates a management cluster on
// kind, clusterctl installs the release, and the specs run in a Cluster of the Docker provider. That needs Docker; see
// docs/local-plane.md. The tests of the configuration need no Docker and always run.
package kind

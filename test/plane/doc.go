// SPDX-License-Identifier: Apache-2.0

// Package plane answers one question: where does a test find a real Cluster
// API, with real workload clusters, on a machine that has Go and nothing else?
// It knows nothing about 5-Spot.
//
// A Plane is a management cluster (etcd, kube-apiserver and
// kube-controller-manager) with Cluster API's own managers on it. Workload
// clusters are either a second real control plane whose Machines come from the
// provider in test/infrastructure, or Cluster API's in-memory one. All of them
// are processes in the care of the caller: when it ends, however it ends, they
// end.
package plane

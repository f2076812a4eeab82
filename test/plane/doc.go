// SPDX-License-Identifier: Apache-2.0

// Package plane runs a real Cluster API, with real workload clusters, on a machine that has only Go. It does not depend
// on 5-Spot.
//
// A Plane is a management cluster (etcd, kube-apiserver and kube-controller-manager) with Cluster API's own managers. A
// workload cluster is either a second real control plane, whose Machines come from the provider in test/infrastructure,
// or Cluster API's in-memory one. All of them are child processes: they end when the caller ends, for any reason.
package plane

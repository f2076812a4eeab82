// SPDX-License-Identifier: Apache-2.0

// Package plane runs a real Cluster API, with real workload clusters, on a machine that has only Go. It does not depend
// on 5-Spot.
//
// A Plane is a management cluster (etcd, kube-apiserver and
// kube-controller-manager) with Cluster API's own managers on it. Workload
// clusters are either a second real control plane whose Machines come from the
// provider in test/infrastructure, or Cluster API's in-memory one. All of them
// are processes in the care of the caller: when it ends, however it ends, they
// end.
//
// It is not kind with Cluster API's Docker provider, which needs a container runtime and images from a registry; many
// contributors' machines and CI systems have neither. A fake would test only our model of these programs. Not tested
// here: images, a cloud's provider, clusterctl's downloads.
package plane

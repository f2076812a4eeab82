// SPDX-License-Identifier: Apache-2.0

// Package exp has the experimental features. Each has a feature gate that is off by default, and its own API version. A
// feature graduates after it has run on a fleet, its API has not changed for two releases, and a failure of it is known
// to do no harm. Cluster API does the same: https://github.com/kubernetes-sigs/cluster-api/tree/main/exp.
package exp

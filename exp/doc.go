// SPDX-License-Identifier: Apache-2.0

// Package exp is the room of features that are tried before they are promised. Each
// has a feature gate that is off, and an API version of its own. One leaves this
// room when it has run on somebody's fleet, when its API has not changed for two
// releases, and when a failure of it has been shown to harm nobody; see
// https://github.com/kubernetes-sigs/cluster-api/tree/main/exp for the custom.
package exp

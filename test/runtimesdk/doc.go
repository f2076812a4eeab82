// SPDX-License-Identifier: Apache-2.0

// Package runtimesdk answers one question: do Cluster API's core manager and ours get
// along when one calls the other? It has a plane of its own, with the feature gate
// RuntimeSDK on, and starts, stops and kills either manager.
package runtimesdk

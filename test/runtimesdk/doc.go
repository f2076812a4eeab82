// SPDX-License-Identifier: Apache-2.0

// Package runtimesdk tests Cluster API's core manager and 5-Spot's manager, which call each other through the Runtime
// SDK. It has its own plane with the feature gate RuntimeSDK, and starts, stops and kills either manager.
package runtimesdk

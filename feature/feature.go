// SPDX-License-Identifier: Apache-2.0

// Package feature has the feature gates of 5-Spot. They share a flag with the feature gates of Cluster API.
package feature

import (
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/cluster-api/feature"
)

// NodeDetach takes a Node out of its load balancers before its pods go.
const NodeDetach featuregate.Feature = "NodeDetach"

// EvictionGuard has pods that an operator moves leave a Node by its operator's hand.
const EvictionGuard featuregate.Feature = "EvictionGuard"

// Gates reports which features are enabled. Do not use it before the flags are parsed.
var Gates featuregate.FeatureGate = feature.MutableGates

func init() {
	runtime.Must(feature.MutableGates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		NodeDetach:    {Default: false, PreRelease: featuregate.Alpha},
		EvictionGuard: {Default: false, PreRelease: featuregate.Alpha},
	}))
}

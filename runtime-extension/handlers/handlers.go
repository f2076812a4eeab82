// SPDX-License-Identifier: Apache-2.0

// Package handlers lists the handlers of all Runtime SDK hooks that 5-Spot serves to Cluster API.
package handlers

import (
	"k8s.io/utils/clock"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers/topologymutation"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/server"
)

// All returns every handler. They read from reader, a cache with the index wake.ClusterIndex.
//
// 5-Spot does not serve the in-place update hooks and GenerateUpgradePlan, because Cluster API accepts only one
// extension for each.
func All(reader client.Reader, c clock.PassiveClock) []server.Handler {
	life := &lifecycle.Handlers{Reader: reader, Clock: c}
	// With Ignore, an outage of 5-Spot does not block any Cluster.
	const failurePolicy = runtimehooksv1.FailurePolicyIgnore
	return []server.Handler{
		{Name: "before-cluster-delete", Hook: runtimehooksv1.BeforeClusterDelete, Func: life.BeforeClusterDelete, FailurePolicy: failurePolicy},
		{Name: "before-cluster-upgrade", Hook: runtimehooksv1.BeforeClusterUpgrade, Func: life.BeforeClusterUpgrade, FailurePolicy: failurePolicy},
		{Name: "before-workers-upgrade", Hook: runtimehooksv1.BeforeWorkersUpgrade, Func: life.BeforeWorkersUpgrade, FailurePolicy: failurePolicy},
		{Name: "after-control-plane-initialized", Hook: runtimehooksv1.AfterControlPlaneInitialized, Func: life.AfterControlPlaneInitialized, FailurePolicy: failurePolicy},
		// Cluster API calls these only if a ClusterClass names them.
		{Name: "discover-variables", Hook: runtimehooksv1.DiscoverVariables, Func: topologymutation.DiscoverVariables},
		{Name: "validate-topology", Hook: runtimehooksv1.ValidateTopology, Func: topologymutation.ValidateTopology},
		{Name: "generate-patches", Hook: runtimehooksv1.GeneratePatches, Func: topologymutation.GeneratePatches},
	}
}

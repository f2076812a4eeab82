// SPDX-License-Identifier: Apache-2.0

// Package topologymutation answers one question: what does Cluster API's topology
// controller have to know of the variable scheduledMachines? Its handlers say how the
// variable looks and whether a value is good. The machines themselves are made by
// package controllers/topology, so no template is patched. The handlers need nothing
// but their request.
package topologymutation

import (
	"context"
	"encoding/json"
	"strings"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

// longestMessage bounds what a bad value makes of a condition of the Cluster, in bytes.
const longestMessage = 4096

// DiscoverVariables says how the variable looks.
func DiscoverVariables(_ context.Context, _ *runtimehooksv1.DiscoverVariablesRequest, response *runtimehooksv1.DiscoverVariablesResponse) {
	response.Variables = append(response.Variables[:0], Variable())
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
}

// GeneratePatches changes nothing: ScheduledMachines are no part of any template.
func GeneratePatches(_ context.Context, _ *runtimehooksv1.GeneratePatchesRequest, response *runtimehooksv1.GeneratePatchesResponse) {
	response.Items = nil
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
}

// ValidateTopology refuses a variable that the webhook would refuse as
// ScheduledMachines. The same value always gives the same message.
func ValidateTopology(_ context.Context, request *runtimehooksv1.ValidateTopologyRequest, response *runtimehooksv1.ValidateTopologyResponse) {
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	value, found := valueOf(request.Variables, variable.Name)
	if !found {
		return
	}
	_, errs := variable.Parse(value, clusterName(request.Variables))
	if len(errs) == 0 {
		return
	}
	messages := make([]string, 0, len(errs))
	for _, e := range errs {
		messages = append(messages, e.Error())
	}
	response.SetStatus(runtimehooksv1.ResponseStatusFailure)
	response.SetMessage(clip.To(strings.Join(messages, "; "), longestMessage))
}

func valueOf(variables []runtimehooksv1.Variable, name string) (value []byte, found bool) {
	for _, v := range variables {
		if v.Name == name {
			return v.Value.Raw, true
		}
	}
	return nil, false
}

// clusterName is the name of the Cluster, among the variables that Cluster API
// defines, or a short one where it is not said. Names of ScheduledMachines begin with
// it, and must not be too long.
func clusterName(variables []runtimehooksv1.Variable) string {
	value, _ := valueOf(variables, runtimehooksv1.BuiltinsName)
	var builtin runtimehooksv1.Builtins
	if err := json.Unmarshal(value, &builtin); err != nil || builtin.Cluster == nil || builtin.Cluster.Name == "" {
		return "c"
	}
	return builtin.Cluster.Name
}

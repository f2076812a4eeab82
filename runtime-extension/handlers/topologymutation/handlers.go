// SPDX-License-Identifier: Apache-2.0

// Package topologymutation implements the Runtime SDK hooks for the topology variable scheduledMachines: its schema,
// and the validation of its value. It patches no template, because package controllers/topology creates the
// ScheduledMachines. The handlers use only their request.
package topologymutation

import (
	"context"
	"encoding/json"
	"strings"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

// maxMessage bounds the message about an invalid value in a condition of the Cluster, in bytes.
const maxMessage = 4096

// DiscoverVariables returns the schema of the variable.
func DiscoverVariables(_ context.Context, _ *runtimehooksv1.DiscoverVariablesRequest, response *runtimehooksv1.DiscoverVariablesResponse) {
	response.Variables = append(response.Variables[:0], Variable())
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
}

// GeneratePatches returns no patches: ScheduledMachines are not part of any template.
func GeneratePatches(_ context.Context, _ *runtimehooksv1.GeneratePatchesRequest, response *runtimehooksv1.GeneratePatchesResponse) {
	response.Items = nil
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
}

// ValidateTopology rejects a value if the webhook would reject its ScheduledMachines. The same value always gives the
// same message.
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
	response.SetMessage(clip.To(strings.Join(messages, "; "), maxMessage))
}

func valueOf(variables []runtimehooksv1.Variable, name string) (value []byte, found bool) {
	for _, v := range variables {
		if v.Name == name {
			return v.Value.Raw, true
		}
	}
	return nil, false
}

// clusterName returns the name of the Cluster from Cluster API's builtin variables, or a short placeholder if it is
// missing. Names of ScheduledMachines start with it and have a maximum length.
func clusterName(variables []runtimehooksv1.Variable) string {
	value, _ := valueOf(variables, runtimehooksv1.BuiltinsName)
	var builtin runtimehooksv1.Builtins
	if err := json.Unmarshal(value, &builtin); err != nil || builtin.Cluster == nil || builtin.Cluster.Name == "" {
		return "c"
	}
	return builtin.Cluster.Name
}

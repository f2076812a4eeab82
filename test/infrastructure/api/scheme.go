// SPDX-License-Identifier: Apache-2.0

// Package api answers one question: which kinds does the infrastructure
// provider of the tests serve?
package api

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	controlplanev1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/controlplane/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// AddToScheme registers all of them.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(infrav1.AddToScheme(s), bootstrapv1.AddToScheme(s), controlplanev1.AddToScheme(s))
}

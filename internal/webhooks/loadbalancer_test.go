// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/feature"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/webhooks"
)

// TestALoadBalancerWithoutTheFeatureGate expects a warning on create and update, and no error.
func TestALoadBalancerWithoutTheFeatureGate(t *testing.T) {
	for name, on := range map[string]bool{"Off": false, "On": true} {
		t.Run(name, func(t *testing.T) {
			gates := featuregate.NewFeatureGate()
			if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{feature.NodeDetach: {Default: on, PreRelease: featuregate.Alpha}}); err != nil {
				t.Fatal(err)
			}
			hook, lb := &webhooks.LoadBalancer{Gates: gates}, &expv1.LoadBalancer{}
			created, err1 := hook.ValidateCreate(t.Context(), lb)
			updated, err2 := hook.ValidateUpdate(t.Context(), lb, lb)
			deleted, err3 := hook.ValidateDelete(t.Context(), lb)
			if err1 != nil || err2 != nil || err3 != nil || len(deleted) > 0 {
				t.Errorf("got %v, %v, %v, warnings %q", err1, err2, err3, deleted)
			}
			for _, warnings := range [][]string{created, updated} {
				if got := strings.Contains(strings.Join(warnings, ""), "NodeDetach is off"); got == on {
					t.Errorf("got %q with the feature gate on: %t", warnings, on)
				}
			}
		})
	}
}

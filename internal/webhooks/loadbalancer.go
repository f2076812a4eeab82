// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/feature"
)

// +kubebuilder:webhook:verbs=create;update,path=/gate-exp-5spot-finos-org-v1alpha1-loadbalancer,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,groups=exp.5spot.finos.org,resources=loadbalancers,versions=v1alpha1,name=gate.loadbalancer.exp.5spot.finos.org,sideEffects=None,timeoutSeconds=2,admissionReviewVersions=v1

// loadBalancerPath is the path in the marker above.
const loadBalancerPath = "/gate-exp-5spot-finos-org-v1alpha1-loadbalancer"

// gateOff is the warning. The kind is installed whether the feature gate is on or off.
const gateOff = "the feature gate NodeDetach is off: the 5-Spot manager takes no Node out of this load balancer"

// LoadBalancer warns if the feature gate is off, so that no controller acts on LoadBalancers. It rejects
// nothing.
type LoadBalancer struct {
	acceptAll[*expv1.LoadBalancer]

	// Gates are the feature gates of the manager.
	Gates featuregate.FeatureGate
}

// ValidateCreate returns a warning if the feature gate is off. It never returns an error.
func (w *LoadBalancer) ValidateCreate(context.Context, *expv1.LoadBalancer) (admission.Warnings, error) {
	if w.Gates.Enabled(feature.NodeDetach) {
		return nil, nil
	}
	return admission.Warnings{gateOff}, nil
}

// ValidateUpdate is ValidateCreate for an update.
func (w *LoadBalancer) ValidateUpdate(ctx context.Context, _, lb *expv1.LoadBalancer) (admission.Warnings, error) {
	return w.ValidateCreate(ctx, lb)
}

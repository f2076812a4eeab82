// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
)

// +kubebuilder:webhook:verbs=update,path=/lending-5spot-finos-org-v1alpha1-scheduledmachine,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,groups=5spot.finos.org,resources=scheduledmachines,versions=v1alpha1,name=lending.scheduledmachine.5spot.finos.org,sideEffects=None,timeoutSeconds=2,admissionReviewVersions=v1

// lendingPath is the path in the marker above.
const lendingPath = "/lending-5spot-finos-org-v1alpha1-scheduledmachine"

// Lending warns a tool that lends a machine again soon after its owner took it back. It rejects nothing, and
// neither does its outage (failurePolicy=ignore). It is a separate webhook because the validating one is not
// called for the switches (ADR 0013).
type Lending struct {
	acceptAll[*v1alpha1.ScheduledMachine]

	// Clock is the source of the time.
	Clock clock.PassiveClock
}

// ValidateUpdate returns a warning and never an error.
func (w *Lending) ValidateUpdate(_ context.Context, old, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	if _, again := lending.Again(m, w.Clock.Now()); again && !old.ScheduleEnabled() {
		return admission.Warnings{lending.Warning}, nil
	}
	return nil, nil
}

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

// lendingPath is where the API server calls, as the marker above says.
const lendingPath = "/lending-5spot-finos-org-v1alpha1-scheduledmachine"

// Lending warns a tool that lends a machine again which its owner has just taken back. It
// refuses nothing, and its outage does not either: it is a webhook of its own because the
// one that validates is not asked about the switches (ADR 0013).
type Lending struct {
	// Clock tells the time.
	Clock clock.PassiveClock
}

// ValidateCreate allows everything.
func (*Lending) ValidateCreate(context.Context, *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate warns, and allows everything.
func (w *Lending) ValidateUpdate(_ context.Context, old, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	if _, again := lending.Again(m, w.Clock.Now()); again && !old.ScheduleEnabled() {
		return admission.Warnings{lending.Warning}, nil
	}
	return nil, nil
}

// ValidateDelete allows everything.
func (*Lending) ValidateDelete(context.Context, *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	return nil, nil
}

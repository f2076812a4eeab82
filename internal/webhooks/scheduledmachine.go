// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers one question: may this object be stored? It is thin:
// package validation knows what is wrong, this package knows when to ask.
package webhooks

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-5spot-finos-org-v1alpha1-scheduledmachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=5spot.finos.org,resources=scheduledmachines,versions=v1alpha1,name=validation.scheduledmachine.5spot.finos.org,sideEffects=None,admissionReviewVersions=v1

// ScheduledMachine validates ScheduledMachines. It is stateless.
type ScheduledMachine struct{}

// SetupWithManager serves the webhook on mgr's webhook server.
func (w *ScheduledMachine) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1alpha1.ScheduledMachine{}).WithValidator(w).Complete()
}

// ValidateCreate refuses everything that could not be carried out.
func (*ScheduledMachine) ValidateCreate(_ context.Context, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	return warnings(m), invalid(m, validation.ScheduledMachine(m))
}

// ValidateUpdate refuses what is wrong and was not wrong before. An object that
// was stored before a rule existed can still be turned off, and can always go.
func (*ScheduledMachine) ValidateUpdate(_ context.Context, old, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	if !m.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	known := sets.New[string]()
	for _, e := range validation.ScheduledMachine(old) {
		known.Insert(e.Error())
	}
	var errs field.ErrorList
	for _, e := range validation.ScheduledMachine(m) {
		if !known.Has(e.Error()) {
			errs = append(errs, e)
		}
	}
	if old.Spec.ClusterName != m.Spec.ClusterName {
		errs = append(errs, field.Invalid(field.NewPath("spec", "clusterName"), m.Spec.ClusterName,
			"is immutable: make another ScheduledMachine for another Cluster"))
	}
	return warnings(m), invalid(m, errs)
}

// ValidateDelete allows everything: deletion is never refused.
func (*ScheduledMachine) ValidateDelete(context.Context, *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	return nil, nil
}

// warnings are about what is allowed and is seldom meant.
func warnings(m *v1alpha1.ScheduledMachine) admission.Warnings {
	s := m.Spec.Schedule
	if len(s.DaysOfWeek) > 0 && len(s.HoursOfDay) > 0 {
		return nil
	}
	return admission.Warnings{"spec.schedule: without both daysOfWeek and hoursOfDay the machine never joins; mon-sun and 0-23 mean always"}
}

func invalid(m *v1alpha1.ScheduledMachine, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("ScheduledMachine").GroupKind(), m.Name, errs)
}

// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers one question: may this object be stored? It is thin:
// package validation knows what is wrong, this package knows when to ask, and which
// kinds are installed.
package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-5spot-finos-org-v1alpha1-scheduledmachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=5spot.finos.org,resources=scheduledmachines,versions=v1alpha1,name=validation.scheduledmachine.5spot.finos.org,sideEffects=None,admissionReviewVersions=v1

// path is where the API server calls, as the marker above says.
const path = "/validate-5spot-finos-org-v1alpha1-scheduledmachine"

// ScheduledMachine validates ScheduledMachines. It keeps nothing between two requests.
type ScheduledMachine struct {
	// Mapper knows which kinds are installed. It should be the webhook's own: what
	// people write must not have the controllers wait for discovery.
	Mapper meta.RESTMapper
}

// SetupWithManager serves the webhooks on mgr's webhook server, with a mapper of its own.
func SetupWithManager(mgr ctrl.Manager) error {
	mapper, err := apiutil.NewDynamicRESTMapper(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("preparing discovery for the webhook: %w", err)
	}
	w := &ScheduledMachine{Mapper: mapper}
	mgr.GetWebhookServer().Register(path, w.Handler(mgr.GetScheme()))
	mgr.GetWebhookServer().Register(lendingPath, admission.WithValidator(mgr.GetScheme(), &Lending{Clock: clock.RealClock{}}))
	return nil
}

// Handler answers the API server.
func (w *ScheduledMachine) Handler(scheme *runtime.Scheme) http.Handler {
	return answered(admission.WithValidator(scheme, w))
}

// ValidateCreate refuses everything that could not be carried out.
func (w *ScheduledMachine) ValidateCreate(_ context.Context, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	errs, warnings := w.judge(m)
	return warnings, invalid(m, errs)
}

// ValidateUpdate refuses what is wrong and was not wrong before. An object that
// was stored before a rule existed can still be turned off, and can always go.
func (w *ScheduledMachine) ValidateUpdate(_ context.Context, old, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	if !m.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	before, _ := w.judge(old)
	known := sets.New[string]()
	for _, e := range before {
		known.Insert(e.Error())
	}
	after, warnings := w.judge(m)
	var errs field.ErrorList
	for _, e := range after {
		if !known.Has(e.Error()) {
			errs = append(errs, e)
		}
	}
	if old.Spec.ClusterName != m.Spec.ClusterName {
		errs = append(errs, field.Invalid(field.NewPath("spec", "clusterName"), m.Spec.ClusterName,
			"is immutable: create another ScheduledMachine for another Cluster"))
	}
	return warnings, invalid(m, errs)
}

// ValidateDelete allows everything: deletion is never refused.
func (*ScheduledMachine) ValidateDelete(context.Context, *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	return nil, nil
}

// judge says what is wrong with m, and what is allowed and seldom meant.
func (w *ScheduledMachine) judge(m *v1alpha1.ScheduledMachine) (field.ErrorList, admission.Warnings) {
	errs, warnings := validation.ScheduledMachine(m), validation.Warnings(m)
	for _, k := range validation.Kinds(&m.Spec, field.NewPath("spec")) {
		if slices.ContainsFunc(errs, func(e *field.Error) bool { return strings.HasPrefix(e.Field, k.Path.String()) }) {
			continue // What is no good by name is not looked up.
		}
		wrong, warning := w.lookUp(k)
		errs = append(errs, wrong...)
		warnings = append(warnings, warning...)
	}
	return errs, warnings
}

// missing says what is missing of a kind that is not served, and the way out.
func (w *ScheduledMachine) missing(kind schema.GroupVersionKind) string {
	served, err := w.Mapper.RESTMappings(kind.GroupKind())
	if err != nil || len(served) == 0 {
		return "is not installed: the machine joins once its provider is installed"
	}
	return fmt.Sprintf("is not served in this version: write apiVersion %s", served[0].GroupVersionKind.GroupVersion())
}

// lookUp judges a kind by what the API server serves. Its provider may be installed
// later, so what is not served is only warned of, and so is what cannot be told.
func (w *ScheduledMachine) lookUp(k validation.NamedKind) (field.ErrorList, admission.Warnings) {
	at := k.Path.Child("kind")
	mapping, err := w.Mapper.RESTMapping(k.Kind.GroupKind(), k.Kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil, admission.Warnings{fmt.Sprintf("%s: %s of %s %s", at, k.Kind.Kind, k.Kind.GroupVersion(), w.missing(k.Kind))}
	case err != nil:
		return nil, admission.Warnings{fmt.Sprintf("%s: it is unknown whether %s of %s is installed: see status.conditions", at, k.Kind.Kind, k.Kind.GroupVersion())}
	}
	if err := validation.Kind(mapping, k.Kind); err != nil {
		return field.ErrorList{field.Invalid(at, k.Named, err.Error())}, nil
	}
	return nil, nil
}

func invalid(m *v1alpha1.ScheduledMachine, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("ScheduledMachine").GroupKind(), m.Name, errs)
}

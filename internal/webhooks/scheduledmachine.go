// SPDX-License-Identifier: Apache-2.0

// Package webhooks has the admission webhooks of ScheduledMachines and LoadBalancers. Package validation has
// the rules. This package applies them to requests and checks which kinds are installed.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/feature"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-5spot-finos-org-v1alpha1-scheduledmachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=5spot.finos.org,resources=scheduledmachines,versions=v1alpha1,name=validation.scheduledmachine.5spot.finos.org,sideEffects=None,admissionReviewVersions=v1

// path is the path in the marker above.
const path = "/validate-5spot-finos-org-v1alpha1-scheduledmachine"

// forKinds is how long a request may wait for the lookup of its kinds. The API server rejects the request after
// ten seconds.
const forKinds = 3 * time.Second

// ScheduledMachine validates ScheduledMachines. It is stateless.
type ScheduledMachine struct {
	acceptAll[*v1alpha1.ScheduledMachine]

	// Kinds looks up the installed kinds. Requests must not block each other: a RESTMapper looks up one kind at
	// a time.
	Kinds kinds.Resolver
}

// acceptAll accepts the creation and the deletion of every T, without a warning.
type acceptAll[T any] struct{}

// ValidateCreate accepts every object.
func (acceptAll[T]) ValidateCreate(context.Context, T) (admission.Warnings, error) { return nil, nil }

// ValidateDelete accepts every deletion.
func (acceptAll[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

// SetupWithManager registers the webhooks at mgr's webhook server.
func SetupWithManager(mgr ctrl.Manager) {
	w := &ScheduledMachine{Kinds: kinds.Resolver{Cached: mgr.GetClient(), Live: mgr.GetAPIReader()}}
	mgr.GetWebhookServer().Register(path, w.Handler(mgr.GetScheme()))
	mgr.GetWebhookServer().Register(lendingPath, admission.WithValidator(mgr.GetScheme(), &Lending{Clock: clock.RealClock{}}))
	mgr.GetWebhookServer().Register(loadBalancerPath, admission.WithValidator(mgr.GetScheme(), &LoadBalancer{Gates: feature.Gates}))
}

// Handler returns the HTTP handler for admission requests.
func (w *ScheduledMachine) Handler(scheme *runtime.Scheme) http.Handler {
	return rejectUndecodable(admission.WithValidator(scheme, w))
}

// ValidateCreate rejects an object that could not be reconciled.
func (w *ScheduledMachine) ValidateCreate(ctx context.Context, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	ctx, cancel := context.WithTimeout(ctx, forKinds)
	defer cancel()
	errs, warnings := w.validate(ctx, m)
	return warnings, invalid(m, errs)
}

// ValidateUpdate rejects errors that the old object did not have. An object from before a rule can thus be
// turned off, and an object that is being deleted always passes.
func (w *ScheduledMachine) ValidateUpdate(ctx context.Context, old, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	if !m.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, forKinds)
	defer cancel()
	before, _ := w.validate(ctx, old)
	known := sets.New[string]()
	for _, e := range before {
		known.Insert(e.Error())
	}
	errs, warnings := w.validate(ctx, m)
	errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return known.Has(e.Error()) })
	if old.Spec.ClusterName != m.Spec.ClusterName {
		errs = append(errs, field.Invalid(field.NewPath("spec", "clusterName"), m.Spec.ClusterName,
			"is immutable: create another ScheduledMachine for another Cluster"))
	}
	return warnings, invalid(m, errs)
}

// validate returns the errors of m, and warnings for valid values that are rarely intended.
func (w *ScheduledMachine) validate(ctx context.Context, m *v1alpha1.ScheduledMachine) (field.ErrorList, admission.Warnings) {
	errs, warnings := validation.ScheduledMachine(m), validation.Warnings(m)
	for _, k := range validation.Kinds(&m.Spec, field.NewPath("spec")) {
		if slices.ContainsFunc(errs, func(e *field.Error) bool { return strings.HasPrefix(e.Field, k.Path.String()) }) {
			continue // A kind with an invalid name is not looked up.
		}
		wrong, warning := w.lookUp(ctx, k)
		errs = append(errs, wrong...)
		warnings = append(warnings, warning...)
	}
	return errs, warnings
}

// lookUp checks a kind against its CustomResourceDefinition. A kind that is not served is only a warning,
// because its provider may be installed later. So is a kind whose lookup fails.
func (w *ScheduledMachine) lookUp(ctx context.Context, k validation.NamedKind) (field.ErrorList, admission.Warnings) {
	at := k.Path.Child("kind")
	err := w.Kinds.ToMake(ctx, k.Kind)
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, kinds.ErrUnusable):
		return field.ErrorList{field.Invalid(at, k.Named, err.Error())}, nil
	case errors.Is(err, kinds.ErrNotInstalled), errors.Is(err, kinds.ErrNotServed):
		return nil, admission.Warnings{fmt.Sprintf("%s: %v; until then the machine does not join", at, err)}
	default:
		return nil, admission.Warnings{fmt.Sprintf("%s: it is unknown whether %s is installed: see status.conditions", at, k.Kind.GroupKind())}
	}
}

func invalid(m *v1alpha1.ScheduledMachine, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("ScheduledMachine").GroupKind(), m.Name, errs)
}

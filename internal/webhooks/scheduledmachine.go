// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers one question: may this object be stored? It is thin:
// package validation knows what is wrong, this package knows when to ask, and which
// kinds are installed.
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

// path is where the API server calls, as the marker above says.
const path = "/validate-5spot-finos-org-v1alpha1-scheduledmachine"

// forKinds is how long a request waits for what is known of the kinds that it names. The
// API server gives up after ten seconds, and refuses the request.
const forKinds = 3 * time.Second

// ScheduledMachine validates ScheduledMachines. It keeps nothing between two requests.
type ScheduledMachine struct {
	// Kinds knows which kinds are installed. No request may wait for another's look-up:
	// a RESTMapper looks up one kind at a time.
	Kinds kinds.Resolver
}

// SetupWithManager serves the webhooks on mgr's webhook server.
func SetupWithManager(mgr ctrl.Manager) {
	w := &ScheduledMachine{Kinds: kinds.Resolver{Cached: mgr.GetClient(), Live: mgr.GetAPIReader()}}
	mgr.GetWebhookServer().Register(path, w.Handler(mgr.GetScheme()))
	mgr.GetWebhookServer().Register(lendingPath, admission.WithValidator(mgr.GetScheme(), &Lending{Clock: clock.RealClock{}}))
	mgr.GetWebhookServer().Register(loadBalancerPath, admission.WithValidator(mgr.GetScheme(), &LoadBalancer{Gates: feature.Gates}))
}

// Handler answers the API server.
func (w *ScheduledMachine) Handler(scheme *runtime.Scheme) http.Handler {
	return answered(admission.WithValidator(scheme, w))
}

// ValidateCreate refuses everything that could not be carried out.
func (w *ScheduledMachine) ValidateCreate(ctx context.Context, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	ctx, cancel := context.WithTimeout(ctx, forKinds)
	defer cancel()
	errs, warnings := w.judge(ctx, m)
	return warnings, invalid(m, errs)
}

// ValidateUpdate refuses what is wrong and was not wrong before. An object that
// was stored before a rule existed can still be turned off, and can always go.
func (w *ScheduledMachine) ValidateUpdate(ctx context.Context, old, m *v1alpha1.ScheduledMachine) (admission.Warnings, error) {
	if !m.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, forKinds)
	defer cancel()
	before, _ := w.judge(ctx, old)
	known := sets.New[string]()
	for _, e := range before {
		known.Insert(e.Error())
	}
	after, warnings := w.judge(ctx, m)
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
func (w *ScheduledMachine) judge(ctx context.Context, m *v1alpha1.ScheduledMachine) (field.ErrorList, admission.Warnings) {
	errs, warnings := validation.ScheduledMachine(m), validation.Warnings(m)
	for _, k := range validation.Kinds(&m.Spec, field.NewPath("spec")) {
		if slices.ContainsFunc(errs, func(e *field.Error) bool { return strings.HasPrefix(e.Field, k.Path.String()) }) {
			continue // What is no good by name is not looked up.
		}
		wrong, warning := w.lookUp(ctx, k)
		errs = append(errs, wrong...)
		warnings = append(warnings, warning...)
	}
	return errs, warnings
}

// lookUp judges a kind by its definition. Its provider may be installed later, so what
// is not served is only warned of, and so is what cannot be told.
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

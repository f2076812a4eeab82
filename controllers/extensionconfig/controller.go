// SPDX-License-Identifier: Apache-2.0

// Package extensionconfig registers 5-Spot's runtime extension with Cluster API, as the ExtensionConfig fivespot.
// Cluster API's manager does not start while a registered extension does not respond. Therefore the extension is
// registered only while it can respond (ADR 0016).
package extensionconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

const (
	// Name is the name of the ExtensionConfig. It is part of the API: ClusterClasses refer to handlers as
	// handler.fivespot.
	Name = "fivespot"

	// Names of other objects of the installation, as config/default sets them.
	serviceName    = "fivespot-webhook-service"
	servicePort    = 443
	ownerName      = "fivespot-validating-webhook-configuration"
	deploymentName = "fivespot-controller-manager"

	// caName is the file with the CA of the serving certificate, as cert-manager writes it.
	caName = "ca.crt"
)

// Mode is whether to register the extension.
type Mode string

const (
	// Enabled registers it if Cluster API accepts registrations.
	Enabled Mode = "enabled"
	// Disabled removes the registration.
	Disabled Mode = "disabled"
	// External leaves the registration to another manager of the same installation, which serves another shard.
	External Mode = "external"
)

// Options configures the registration.
type Options struct {
	// Mode is Enabled or Disabled. With External, the controller does not run.
	Mode Mode
	// URL is the address of the webhook server for Cluster API. Empty means its Service in PodNamespace.
	URL string
	// PodNamespace is the namespace of the manager's pod, empty outside a cluster.
	PodNamespace string
	// WatchedNamespace is the only namespace that the manager watches; empty means all.
	WatchedNamespace string
	// CertDir has the files CertName and KeyName of the webhook server's certificate, and ca.crt.
	CertDir, CertName, KeyName string
}

// A State is the state of the registration.
type State string

// The states. They are label values of a metric.
const (
	// Registered means that Cluster API calls the extension.
	Registered State = "Registered"
	// Withdrawn means that there is no registration, as configured.
	Withdrawn State = "Withdrawn"
	// AddressUnknown means that the manager does not know its own address.
	AddressUnknown State = "AddressUnknown"
	// NotServing means that the webhook server is not ready, or that there is no CA.
	NotServing State = "NotServing"
	// NotInstalled means that Cluster API has no ExtensionConfigs, or that an object of the installation is missing.
	NotInstalled State = "NotInstalled"
	// Refused means that Cluster API rejects registrations, because RuntimeSDK is off, or that 5-Spot's role forbids
	// them.
	Refused State = "Refused"
	// NameConflict means that another writer has an ExtensionConfig with this name.
	NameConflict State = "NameConflict"
	// Suppressed means that a write would be needed, but writes are suppressed.
	Suppressed State = "Suppressed"
	// Failed means another error.
	Failed State = "Failed"
)

var (
	errAddressUnknown = errors.New("the manager does not know its own address: set --pod or --runtime-extension-url")
	errForeign        = fmt.Errorf("ExtensionConfig %s exists and is not managed by 5-Spot, and stays unchanged: delete it, or start the manager with --runtime-extension=disabled", Name)
	errNoOwner        = fmt.Errorf("there is no ValidatingWebhookConfiguration %s, which must own the registration: 5-Spot is not installed, or is being removed", ownerName)
	errNoCA           = fmt.Errorf("there is no %s next to the certificate of the webhook server, so Cluster API cannot trust it", caName)
)

// Reconciler reconciles the ExtensionConfig.
type Reconciler struct {
	Options Options
	// Live reads from the API server. Reads are rare, and their kinds may not be installed.
	Live client.Reader
	// Actuate writes to the management cluster.
	Actuate *actuate.Actuator
	// Serving returns an error while the webhook server does not serve.
	Serving func(*http.Request) error
	// Backoff is the back-off after a failure.
	Backoff workqueue.TypedRateLimiter[ctrl.Request]

	// watch starts the watch on ExtensionConfigs. It is called after a read has shown that the kind exists.
	watch func() error

	mu sync.Mutex
	// withdrawn reports that the manager has removed the registration because it stops for good.
	withdrawn bool
	// reported is the state that was logged last.
	reported State
}

// Reconcile registers the extension, or removes the registration. A failure is a State, not an error, because it is
// normal if Cluster API rejects registrations.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withdrawn {
		return ctrl.Result{}, nil
	}
	state, why := r.reconcile(ctx)
	r.report(ctx, state, why)
	switch state {
	case Registered, Withdrawn, AddressUnknown, NameConflict, Suppressed:
		r.Backoff.Forget(req)
		return ctrl.Result{}, nil
	case Failed:
		telemetry.Failed("extensionconfig")
		fallthrough
	default:
		return ctrl.Result{RequeueAfter: r.Backoff.When(req)}, nil
	}
}

// reconcile returns the state of the registration, and the reason for it.
func (r *Reconciler) reconcile(ctx context.Context) (State, error) {
	enabled := r.Options.Mode == Enabled
	if enabled && r.Options.URL == "" && r.Options.PodNamespace == "" {
		return AddressUnknown, errAddressUnknown
	}
	existing, err := r.existing(ctx)
	if err != nil {
		return stateOf(err), err
	}
	if r.watch != nil {
		if err := r.watch(); err != nil {
			return Failed, fmt.Errorf("watching ExtensionConfigs: %w", err)
		}
	}
	switch mine := ours(existing, r.Options); {
	case enabled && existing != nil && !mine:
		return NameConflict, errForeign
	case enabled:
		return r.register(ctx, existing)
	case mine:
		if err := r.Actuate.Delete(ctx, existing); err != nil {
			return stateOf(err), err
		}
	}
	return Withdrawn, nil
}

// existing returns the ExtensionConfig, nil if there is none.
func (r *Reconciler) existing(ctx context.Context) (*runtimev1.ExtensionConfig, error) {
	c := &runtimev1.ExtensionConfig{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: Name}, c); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("reading ExtensionConfig: %w", err))
	}
	return c, nil
}

// want returns the desired ExtensionConfig, or the state that prevents the registration.
func (r *Reconciler) want(ctx context.Context) (*runtimev1.ExtensionConfig, State, error) {
	if err := r.Serving(nil); err != nil {
		return nil, NotServing, err
	}
	ca, err := os.ReadFile(filepath.Join(r.Options.CertDir, caName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, Failed, err
	}
	if len(bytes.TrimSpace(ca)) == 0 {
		return nil, NotServing, errNoCA
	}
	if r.Options.PodNamespace == "" {
		return desired(r.Options, ca, nil), "", nil
	}
	owner := &metav1.PartialObjectMetadata{}
	owner.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
	switch err := r.Live.Get(ctx, client.ObjectKey{Name: ownerName}, owner); {
	case apierrors.IsNotFound(err):
		return nil, NotInstalled, errNoOwner
	case err != nil:
		return nil, Failed, fmt.Errorf("reading owner: %w", err)
	}
	return desired(r.Options, ca, owner), "", nil
}

// register applies the desired ExtensionConfig, unless existing equals it. If there was no object, an object that was
// created meanwhile is not overwritten.
func (r *Reconciler) register(ctx context.Context, existing *runtimev1.ExtensionConfig) (State, error) {
	want, state, err := r.want(ctx)
	if err != nil {
		return state, err
	}
	if existing != nil && current(existing, want) {
		return Registered, nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return Failed, err
	}
	u := &unstructured.Unstructured{Object: object}
	unstructured.RemoveNestedField(u.Object, "status")
	var force []client.ApplyOption
	if existing != nil {
		u.SetUID(existing.UID)
		force = []client.ApplyOption{client.ForceOwnership}
	}
	if err := r.Actuate.Apply(ctx, u, force...); err != nil {
		return stateOf(err), err
	}
	return Registered, nil
}

// stateOf converts an error of the API server to a state. Cluster API's webhook rejects registrations with Forbidden,
// like a missing permission.
func stateOf(err error) State {
	switch {
	case actuate.IsSuppressed(err):
		return Suppressed
	case actuate.Gone(err):
		return NotInstalled
	case apierrors.IsForbidden(err):
		return Refused
	default:
		return Failed
	}
}

// report sets the metric, and logs the state if it changed.
func (r *Reconciler) report(ctx context.Context, state State, why error) {
	states.Reset()
	states.WithLabelValues(string(state)).Set(1)
	if state == r.reported {
		return
	}
	r.reported = state
	log := ctrl.LoggerFrom(ctx).WithValues("ExtensionConfig", Name, "state", state)
	if why != nil {
		log = log.WithValues("why", why.Error())
	}
	log.Info("Runtime extension changed its state")
}

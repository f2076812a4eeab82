// SPDX-License-Identifier: Apache-2.0

// Package extensionconfig answers one question: is our runtime extension registered
// with Cluster API while, and only while, it can answer? Cluster API's manager does not
// start while an extension that is registered does not answer, so the registration
// comes and goes with us (ADR 0016).
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
	// Name is the name of the ExtensionConfig. It is an API: ClusterClasses name
	// handlers as handler.fivespot.
	Name = "fivespot"

	// What is installed with the manager, by the names that config/default gives it.
	serviceName    = "fivespot-webhook-service"
	servicePort    = 443
	ownerName      = "fivespot-validating-webhook-configuration"
	deploymentName = "fivespot-controller-manager"

	// caName is the file with the authority that signed the serving certificate, where
	// cert-manager puts it.
	caName = "ca.crt"
)

// Mode says whether the extension is to be registered.
type Mode string

const (
	// Enabled registers it wherever Cluster API takes it.
	Enabled Mode = "enabled"
	// Disabled withdraws it.
	Disabled Mode = "disabled"
	// Elsewhere leaves it to another manager of the same installation, which shares the
	// fleet with this one: nothing is registered, and nothing withdrawn.
	Elsewhere Mode = "elsewhere"
)

// Options say what is registered.
type Options struct {
	// Mode is Enabled or Disabled; with Elsewhere there is nothing to reconcile.
	Mode Mode
	// URL is where Cluster API reaches the webhook server. Empty is its Service in
	// PodNamespace.
	URL string
	// PodNamespace is the namespace that the manager runs in, empty outside of a cluster.
	PodNamespace string
	// WatchedNamespace is the one namespace that the manager watches; empty is all.
	WatchedNamespace string
	// CertDir holds the certificate CertName of the webhook server with its key KeyName,
	// and ca.crt.
	CertDir, CertName, KeyName string
}

// A State is where the registration stands.
type State string

// The states, which are values of a metric.
const (
	// Registered means that Cluster API calls us.
	Registered State = "Registered"
	// Withdrawn means that it is not to call us.
	Withdrawn State = "Withdrawn"
	// Unaddressed means that nobody said where it would reach us.
	Unaddressed State = "Unaddressed"
	// NotServing means that the webhook server is not ready.
	NotServing State = "NotServing"
	// NotInstalled means that Cluster API has no ExtensionConfigs, or that what is
	// installed with the manager is not there.
	NotInstalled State = "NotInstalled"
	// Refused means that Cluster API takes no registrations: RuntimeSDK is off.
	Refused State = "Refused"
	// Taken means that somebody else has an ExtensionConfig of our name.
	Taken State = "Taken"
	// Suppressed means that the manager carries nothing out, and would change it.
	Suppressed State = "Suppressed"
	// Failed means that something else went wrong.
	Failed State = "Failed"
)

var (
	errUnaddressed = errors.New("the manager does not know its own address: set --pod or --runtime-extension-url")
	errForeign     = fmt.Errorf("ExtensionConfig %s exists but belongs to somebody else, and is left alone: delete it, or start the manager with --runtime-extension=disabled", Name)
	errNoOwner     = fmt.Errorf("there is no ValidatingWebhookConfiguration %s, which must own the registration: 5-Spot is not installed, or is being removed", ownerName)
	errNoCA        = fmt.Errorf("there is no %s next to the certificate of the webhook server, so Cluster API cannot trust it", caName)
)

// Reconciler keeps the registration.
type Reconciler struct {
	// Options say what is registered.
	Options Options
	// Live reads from the API server: it is asked rarely, and of kinds that may not
	// be there.
	Live client.Reader
	// Actuate writes to the management cluster.
	Actuate *actuate.Actuator
	// Serving returns an error while the webhook server does not serve.
	Serving func(*http.Request) error
	// Backoff says when what did not succeed is tried again.
	Backoff workqueue.TypedRateLimiter[ctrl.Request]

	// watch has ExtensionConfigs wake us, once their kind is known to exist.
	watch func() error

	mu sync.Mutex
	// left says that the manager has withdrawn for good.
	left bool
	// told is the state that the log told last.
	told State
}

// Reconcile registers or withdraws. That it cannot is a state and no error: where
// Cluster API takes no registrations, nothing is wrong.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return ctrl.Result{}, nil
	}
	state, why := r.reconcile(ctx)
	r.tell(ctx, state, why)
	switch state {
	case Registered, Withdrawn, Unaddressed, Taken, Suppressed:
		r.Backoff.Forget(req)
		return ctrl.Result{}, nil
	case Failed:
		telemetry.Failed("extensionconfig")
		fallthrough
	default:
		return ctrl.Result{RequeueAfter: r.Backoff.When(req)}, nil
	}
}

// reconcile returns where the registration stands, and why it stands there.
func (r *Reconciler) reconcile(ctx context.Context) (State, error) {
	enabled := r.Options.Mode == Enabled
	if enabled && r.Options.URL == "" && r.Options.PodNamespace == "" {
		return Unaddressed, errUnaddressed
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
	f := facts{Enabled: enabled, Existing: presenceOf(existing, r.Options)}
	var want *runtimev1.ExtensionConfig
	if enabled && f.Existing != foreign {
		var state State
		if want, state, err = r.want(ctx); err != nil {
			return state, err
		}
		f.Current = existing != nil && current(existing, want)
	}
	return r.act(ctx, decide(f), existing, want)
}

// existing returns the ExtensionConfig of our name, nil if there is none.
func (r *Reconciler) existing(ctx context.Context) (*runtimev1.ExtensionConfig, error) {
	c := &runtimev1.ExtensionConfig{}
	switch err := r.Live.Get(ctx, client.ObjectKey{Name: Name}, c); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ExtensionConfig: %w", err)
	}
	return c, nil
}

// want returns what we would register, or what keeps us from it.
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

// act carries out a step.
func (r *Reconciler) act(ctx context.Context, next step, existing, want *runtimev1.ExtensionConfig) (State, error) {
	switch next {
	case rest:
		if want == nil {
			return Withdrawn, nil
		}
		return Registered, nil
	case refuse:
		return Taken, errForeign
	case withdraw:
		if err := r.Actuate.Delete(ctx, existing); err != nil {
			return stateOf(err), err
		}
		return Withdrawn, nil
	case register:
		if err := r.register(ctx, existing, want); err != nil {
			return stateOf(err), err
		}
		return Registered, nil
	default:
		return Failed, fmt.Errorf("unknown step %q", next)
	}
}

// register applies want. Where there was nothing, what came since is not taken over.
func (r *Reconciler) register(ctx context.Context, existing, want *runtimev1.ExtensionConfig) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: object}
	unstructured.RemoveNestedField(u.Object, "status")
	if existing == nil {
		return r.Actuate.Apply(ctx, u)
	}
	u.SetUID(existing.UID)
	return r.Actuate.Update(ctx, u)
}

// stateOf says what an error of the API server means. Core refuses registrations by
// its webhook, which is as forbidden as what our own role does not allow.
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

// tell logs where the registration stands when that changed, and keeps the metric.
func (r *Reconciler) tell(ctx context.Context, state State, why error) {
	report(state)
	if state == r.told {
		return
	}
	r.told = state
	log := ctrl.LoggerFrom(ctx).WithValues("ExtensionConfig", Name, "state", state)
	if why != nil {
		log = log.WithValues("why", why.Error())
	}
	log.Info("Runtime extension changed its state")
}

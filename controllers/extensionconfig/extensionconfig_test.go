// SPDX-License-Identifier: Apache-2.0

package extensionconfig_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers/extensionconfig"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// world is an installed manager in its own namespace.
type world struct {
	*testenv.Fixture
	options extensionconfig.Options
	config  *runtimev1.ExtensionConfig
	owner   *admissionregistrationv1.ValidatingWebhookConfiguration
	serving error
	reads   interceptor.Funcs
	r       *extensionconfig.Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Fixture: server.Fixture(t)}
	w.options = extensionconfig.Options{Mode: extensionconfig.Enabled, PodNamespace: server.Namespace(t), CertDir: t.TempDir()}
	w.certificate("first")
	w.config = &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "fivespot"}}
	w.owner = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "fivespot-validating-webhook-configuration"}}
	for _, obj := range []client.Object{w.config, w.owner} { // An earlier test created it.
		w.Must(client.IgnoreNotFound(w.Client.Delete(t.Context(), obj)))
	}
	w.Create(w.owner)
	return w
}

func (w *world) certificate(ca string) {
	w.Helper()
	w.Must(os.WriteFile(filepath.Join(w.options.CertDir, "ca.crt"), []byte(ca), 0o600))
}

// start starts another manager.
func (w *world) start() {
	w.Helper()
	c := w.Recorded(w.reads)
	w.r = &extensionconfig.Reconciler{
		Options: w.options, Live: c, Actuate: actuate.New(c), Backoff: wake.Backoff(),
		Serving: func(*http.Request) error { return w.serving },
	}
}

// look reconciles once, and reports whether a retry is requested.
func (w *world) look() (again bool) {
	w.Helper()
	res, err := w.r.Reconcile(w.Context(), ctrl.Request{})
	w.Must(err)
	return res.RequeueAfter > 0
}

// settle starts a new manager, and reconciles until no retry is requested.
func (w *world) settle() {
	w.Helper()
	w.start()
	for range 10 {
		if n := len(w.Writes); !w.look() && len(w.Writes) == n {
			return
		}
	}
	w.Fatalf("does not settle: %v", w.Writes)
}

// registered reads the ExtensionConfig.
func (w *world) registered() bool { return w.Read(w.config) }

func TestItIsRegisteredOnce(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.settle()
	if diff := cmp.Diff([]string{"apply ExtensionConfig"}, w.Writes); diff != "" || !w.registered() {
		t.Fatalf("-want, +got:\n%s", diff)
	}
	want := runtimev1.ExtensionConfigSpec{
		ClientConfig: runtimev1.ClientConfig{
			Service:  runtimev1.ServiceReference{Namespace: w.options.PodNamespace, Name: "fivespot-webhook-service", Port: new(int32(443))},
			CABundle: []byte("first"),
		},
		NamespaceSelector: &metav1.LabelSelector{},
	}
	if diff := cmp.Diff(want, w.config.Spec); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if refs := w.config.OwnerReferences; len(refs) != 1 || refs[0].UID != w.owner.UID {
		t.Errorf("it does not go with the webhook: %v", refs)
	}
}

func TestOneNamespaceIsServed(t *testing.T) {
	w := newWorld(t)
	w.options.WatchedNamespace, w.options.URL = "farm", "https://192.0.2.1:9443"
	w.settle()
	if !w.registered() || w.config.Spec.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "farm" {
		t.Errorf("a manager that sees one namespace answers for no other: %v", w.config.Spec)
	}
	if w.config.Spec.ClientConfig.URL != w.options.URL || w.config.Spec.ClientConfig.Service.IsDefined() {
		t.Errorf("it is called at %v", w.config.Spec.ClientConfig)
	}
}

func TestAChangedExtensionConfigIsRepaired(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
	}{
		"Certificate": {"Cluster API trusts the new certificate.", func(w *world) { w.certificate("second") }},
		"Selector": {"A person changed it.", func(w *world) {
			w.Edit(w.config, func() { w.config.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "b"} })
		}},
		"Owner": {"5-Spot was upgraded.", func(w *world) {
			w.Must(w.Client.Delete(w.Context(), w.owner))
			w.owner.ResourceVersion = ""
			w.Create(w.owner)
		}},
		"Deleted": {"A person deleted it.", func(w *world) { w.Must(w.Client.Delete(w.Context(), w.config)) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			w.registered()
			w.Edit(w.config, func() { w.config.Spec.Settings = map[string]string{"holdUpgradesDuringEmergency": "false"} })
			tc.change(w)
			w.settle()
			w.settle()
			if !w.registered() || len(w.Writes) != 2 {
				t.Fatalf("%s\n%v", tc.reason, w.Writes)
			}
			ca, _ := os.ReadFile(filepath.Join(w.options.CertDir, "ca.crt"))
			if got := w.config; string(got.Spec.ClientConfig.CABundle) != string(ca) || len(got.Spec.NamespaceSelector.MatchLabels) > 0 || len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != w.owner.UID {
				t.Errorf("%s\n%+v", tc.reason, got)
			}
			if name != "Deleted" && w.config.Spec.Settings["holdUpgradesDuringEmergency"] != "false" {
				t.Errorf("settings are for people to make: %v", w.config.Spec.Settings)
			}
		})
	}
}

func TestAForeignExtensionConfigStays(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"Unlabelled":    nil,
		"Another5-Spot": {"app.kubernetes.io/managed-by": "5spot", "app.kubernetes.io/instance": "elsewhere"},
	} {
		for _, mode := range []extensionconfig.Mode{extensionconfig.Enabled, extensionconfig.Disabled} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				w := newWorld(t)
				w.options.Mode = mode
				w.config.Labels, w.config.Spec.ClientConfig.URL = labels, "https://192.0.2.2/"
				w.Create(w.config)
				version := w.config.ResourceVersion
				w.settle()
				w.Must(w.r.WithdrawIfFinal(t.Context()))
				if !w.registered() || w.config.ResourceVersion != version || len(w.Writes) > 0 {
					t.Errorf("it was touched: %v", w.Writes)
				}
			})
		}
	}
}

func TestDisabledWithdraws(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.options.Mode = extensionconfig.Disabled
	w.settle()
	w.settle()
	if diff := cmp.Diff([]string{"apply ExtensionConfig", "delete ExtensionConfig"}, w.Writes); diff != "" || w.registered() {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestRegistrationWaitsUntilItIsPossible prevents the registration, and then removes the cause.
func TestRegistrationWaitsUntilItIsPossible(t *testing.T) {
	refuses := func(err error) func(*world) {
		return func(w *world) { w.Fail = func(int) (error, error) { return err, nil } }
	}
	kind := runtimev1.GroupVersion.WithKind("ExtensionConfig").GroupKind()
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
	}{
		"RuntimeSDK": {"Core's webhook refuses it.", refuses(apierrors.NewForbidden(schema.GroupResource{}, "fivespot", errors.New("can be set only if the RuntimeSDK feature flag is enabled")))},
		"Core":       {"Core is down.", refuses(apierrors.NewInternalError(errors.New("failed calling webhook")))},
		"Kind": {"Cluster API's kind is missing.", func(w *world) {
			w.reads.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, ok := obj.(*runtimev1.ExtensionConfig); ok {
					return &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: []string{"v1beta2"}}
				}
				return c.Get(ctx, key, obj, opts...)
			}
		}},
		"Owner":   {"We are being removed.", func(w *world) { w.Must(w.Client.Delete(w.Context(), w.owner)) }},
		"Server":  {"The webhook server does not answer yet.", func(w *world) { w.serving = errors.New("not yet") }},
		"CA":      {"Cluster API could not trust the certificate.", func(w *world) { w.Must(os.Remove(filepath.Join(w.options.CertDir, "ca.crt"))) }},
		"EmptyCA": {"Nor with this.", func(w *world) { w.certificate("\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			w.start()
			for range 3 {
				if !w.look() || w.registered() {
					t.Fatalf("%s\nit must look again", tc.reason)
				}
			}
			w.Fail, w.serving, w.reads.Get = nil, nil, nil
			w.certificate("second")
			if w.owner.ResourceVersion = ""; name == "Owner" {
				w.Create(w.owner)
			}
			if name == "Kind" {
				w.start()
			}
			if w.look() || !w.registered() {
				t.Errorf("%s\nit must be registered now: %v", tc.reason, w.Writes)
			}
		})
	}
}

func TestWithoutAnAddressNothingIsAsked(t *testing.T) {
	w := newWorld(t)
	w.options.PodNamespace = ""
	w.reads.Get = func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
		return fmt.Errorf("asked for %s", key)
	}
	w.settle()
	if len(w.Writes) > 0 {
		t.Errorf("%v", w.Writes)
	}
}

func TestTheLastManagerWithdraws(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		replicas int32
		want     bool
	}{
		"Restart": {"Another manager follows.", 2, true},
		"Scaled":  {"No manager follows.", 0, false},
		"Gone":    {"Nor here.", -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			if tc.replicas >= 0 {
				w.Create(deployment(w.options.PodNamespace, tc.replicas))
			}
			w.Must(w.r.WithdrawIfFinal(t.Context()))
			if got := w.registered(); got != tc.want {
				t.Errorf("%s\nregistered is %t", tc.reason, got)
			}
			if w.look(); w.registered() != tc.want {
				t.Error("a manager that left must not come back")
			}
		})
	}
}

// TestAManagerThatEndsWithdraws stops the manager like its pod. The last write needs a context that is not canceled.
func TestAManagerThatEndsWithdraws(t *testing.T) {
	w := newWorld(t)
	w.settle()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.r.Withdrawal().Start(ctx) }()
	end()
	w.Must(<-ended)
	if w.registered() {
		t.Error("Cluster API calls a manager that is gone")
	}
}

func deployment(namespace string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"control-plane": "controller-manager"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fivespot-controller-manager"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager:v1"}}},
			},
		},
	}
}

// TestCrashPoints stops the manager before each write, and after each write with the response lost, and restarts it.
// Each run must end like the run without a crash.
func TestCrashPoints(t *testing.T) {
	testenv.CrashPoints(t, 3, func(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
		t.Helper()
		w := newWorld(t)
		w.Fail = fail
		tell := func() {
			w.settle()
			stations = append(stations, fmt.Sprint(w.registered(), string(w.config.Spec.ClientConfig.CABundle)))
		}
		tell()
		w.certificate("second")
		tell()
		w.options.Mode = extensionconfig.Disabled
		tell()
		return stations, len(w.Writes)
	})
}

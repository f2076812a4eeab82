// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/guard"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var api *testenv.Server

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	crds := filepath.Join("..", "..", "..", "config", "eviction-guard", "crd")
	os.Exit(testenv.Main(m, func(s *testenv.Server) { api = s }, func(env *envtest.Environment) {
		env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, crds)
	}))
}

const host = guard.Name + "." + reclaimapi.Namespace + ".svc"

// world has the Secret and the webhook configuration, as they are installed.
type world struct {
	*testenv.Fixture
	clock  *clocktesting.FakePassiveClock
	secret *corev1.Secret
	config *admissionregistrationv1.ValidatingWebhookConfiguration
	// as is the user that guards with leader election run as. An empty user may do everything.
	as string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Fixture: api.Fixture(t), clock: clocktesting.NewFakePassiveClock(time.Now())}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reclaimapi.Namespace}}
	if err := w.Client.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	w.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: guard.SecretName}}
	w.config = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: guard.Name}}
	w.config.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name: "eviction.5spot.finos.org", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		FailurePolicy: new(admissionregistrationv1.Ignore),
		ClientConfig:  admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: reclaimapi.Namespace, Name: guard.Name}},
	}}
	w.Create(w.secret, w.config)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = w.Client.Delete(ctx, w.secret), w.Client.Delete(ctx, w.config)
	})
	return w
}

// keep runs one reconcile of the certificate, as one replica.
func (w *world) keep() error {
	w.Helper()
	c := w.Recorded(interceptor.Funcs{})
	return guard.KeepCertificates(w.Context(), c, actuate.New(c), w.clock, client.ObjectKeyFromObject(w.secret), host)
}

// trusted returns the authorities that the API server trusts.
func (w *world) trusted() *x509.CertPool {
	w.Helper()
	w.Read(w.config)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.config.Webhooks[0].ClientConfig.CABundle)
	return pool
}

// certificate returns the certificate in the Secret.
func (w *world) certificate() *x509.Certificate {
	w.Helper()
	w.Read(w.secret)
	pair, err := tls.X509KeyPair(w.secret.Data["tls.crt"], w.secret.Data["tls.key"])
	w.Must(err)
	return pair.Leaf
}

func (w *world) wantTrust(reason string, c *x509.Certificate, want bool) {
	w.Helper()
	_, err := c.Verify(x509.VerifyOptions{DNSName: host, Roots: w.trusted(), CurrentTime: w.clock.Now()})
	if (err == nil) != want {
		w.Errorf("%s: verifying: %v", reason, err)
	}
}

func TestACertificateIsMadeOnceAndRenewedWithAnOverlap(t *testing.T) {
	w := newWorld(t)
	w.Must(w.keep())
	first := w.certificate()
	w.wantTrust("the first is trusted", first, true)
	if w.Writes = nil; w.keep() != nil || len(w.Writes) > 0 {
		t.Errorf("nothing is due, and this is written: %v", w.Writes)
	}
	w.clock.SetTime(w.clock.Now().Add(240 * 24 * time.Hour))
	w.Must(w.keep())
	if len(w.Writes) > 0 {
		t.Errorf("it is good for months: %v", w.Writes)
	}
	w.clock.SetTime(w.clock.Now().Add(10 * 24 * time.Hour))
	w.Must(w.keep())
	second := w.certificate()
	if second.Equal(first) {
		t.Fatal("it is not renewed")
	}
	w.wantTrust("a replica whose kubelet is late still serves the first", first, true)
	w.wantTrust("another serves the second", second, true)
	if _, kept := w.secret.Data["ca.key"]; kept || len(w.secret.Data) != 4 {
		t.Error("nobody needs the key of the authority")
	}
	w.clock.SetTime(w.clock.Now().Add(250 * 24 * time.Hour))
	w.Must(w.keep())
	w.wantTrust("the second is served still", second, true)
	w.wantTrust("the first is two behind", first, false)
}

// TestASecretThatWasDeleted has replicas that serve the earlier certificate until their kubelets update the mounted
// Secret.
func TestASecretThatWasDeleted(t *testing.T) {
	w := newWorld(t)
	w.Must(w.keep())
	first := w.certificate()
	w.Must(w.Client.Delete(t.Context(), w.secret))
	w.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.secret.Namespace, Name: w.secret.Name}}
	w.Create(w.secret)
	w.Read(w.config)
	path := *w.config.Webhooks[0].ClientConfig.Service.Path
	w.Must(w.keep())
	if w.Read(w.config); path != *w.config.Webhooks[0].ClientConfig.Service.Path {
		t.Error("replicas do not answer there yet")
	}
	w.wantTrust("it is served still", first, true)
	w.wantTrust("it will be served soon", w.certificate(), true)
	if w.Writes = nil; w.keep() != nil || len(w.Writes) > 0 {
		t.Errorf("nothing is due, and this is written: %v", w.Writes)
	}
}

// TestAClockThatWasAhead has a certificate that is not valid yet.
func TestAClockThatWasAhead(t *testing.T) {
	w := newWorld(t)
	now := w.clock.Now()
	w.clock.SetTime(now.Add(100 * 24 * time.Hour))
	w.Must(w.keep())
	w.clock.SetTime(now)
	w.Must(w.keep())
	w.wantTrust("it is made anew", w.certificate(), true)
}

func TestWhatIsNotACertificateIsReplaced(t *testing.T) {
	for name, data := range map[string]map[string][]byte{
		"Empty":   {"tls.crt": nil, "tls.key": nil, "ca.crt": nil},
		"Garbage": {"tls.crt": []byte("x"), "tls.key": []byte("y"), "ca.crt": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Edit(w.secret, func() { w.secret.Data = data })
			w.Must(w.keep())
			w.wantTrust("it is made anew", w.certificate(), true)
			w.Edit(w.config, func() { w.config.Webhooks[0].ClientConfig.CABundle = w.secret.Data["tls.crt"] })
			w.Must(w.keep())
			w.wantTrust("what somebody else wrote is mended", w.certificate(), true)
		})
	}
}

// TestSecretPathIsCreatedAndRestored checks that the secret path is generated once, and restored.
func TestSecretPathIsCreatedAndRestored(t *testing.T) {
	w := newWorld(t)
	asked := func() string {
		w.Must(w.keep())
		w.Read(w.config)
		return *w.config.Webhooks[0].ClientConfig.Service.Path
	}
	path := asked()
	if secret := strings.TrimPrefix(path, guard.Path+"/"); len(secret) < 26 || secret == path {
		t.Errorf("asked at %s", path)
	}
	w.Edit(w.config, func() { w.config.Webhooks[0].ClientConfig.Service.Path = nil })
	if again := asked(); again != path {
		t.Errorf("asked at %s, then at %s", path, again)
	}
	w.Edit(w.config, func() { w.config.Webhooks[0].ClientConfig.Service.Path = new(guard.Path) })
	w.Edit(w.secret, func() { delete(w.secret.Data, "path") })
	if again := asked(); again == path || again == guard.Path {
		t.Errorf("asked at %s, then at %s", path, again)
	}
}

func TestTheConfigurationMayComeLater(t *testing.T) {
	w := newWorld(t)
	w.Must(w.Client.Delete(t.Context(), w.config))
	w.Must(w.keep())
	again := w.config.DeepCopy()
	again.ResourceVersion, again.UID = "", ""
	w.Create(again)
	w.Must(w.keep())
	w.wantTrust("it is told once it is there", w.certificate(), true)
}

func TestTwoReplicasCreateOneCertificate(t *testing.T) {
	w := newWorld(t)
	start, errs := make(chan struct{}), make(chan error)
	for range 2 {
		go func() {
			<-start
			errs <- guard.KeepCertificates(t.Context(), w.Client, actuate.New(w.Client), w.clock, client.ObjectKeyFromObject(w.secret), host)
		}()
	}
	close(start)
	for range 2 {
		if err := <-errs; err != nil && !apierrors.IsConflict(err) {
			t.Error(err)
		}
	}
	made := w.certificate()
	w.Must(w.keep())
	w.wantTrust("both trust the same", made, true)
}

// replica is a running guard.
type replica struct {
	dir, health, webhook string
	done                 chan error
	stop                 context.CancelFunc
}

func (w *world) start(o guard.Options) *replica {
	w.Helper()
	return w.startAt(free(w.T), o)
}

func (w *world) startAt(address string, o guard.Options) *replica {
	w.Helper()
	r := &replica{dir: w.TempDir(), health: free(w.T), webhook: address, done: make(chan error, 1)}
	if o.CertDir == "" {
		o.CertDir = r.dir
	}
	config := rest.CopyConfig(api.Config)
	if w.as != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: w.as, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: guard.Scheme(), HealthProbeBindAddress: r.health, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	w.Must(err)
	o.Lease, err = leaderelection.NewResourceLock(config, mgr, leaderelection.Options{
		LeaderElection: w.as != "", LeaderElectionID: guard.LeaseName, LeaderElectionNamespace: reclaimapi.Namespace,
	})
	w.Must(err)
	_, port, err := net.SplitHostPort(r.webhook)
	w.Must(err)
	var n int
	_, err = fmt.Sscan(port, &n)
	w.Must(err)
	o.Webhook = webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: n, CertDir: o.CertDir})
	o.Clock = w.clock
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	o.NameProtection = cmp.Or(o.NameProtection, eviction.DefaultNameProtection)
	w.Must(guard.SetupWithManager(w.Context(), mgr, o))
	// A second index with the name is a conflict. Without the first, the guard would call the API server for each
	// waiting pod.
	if mgr.GetFieldIndexer().IndexField(w.Context(), &evictionv1.RescheduleRequest{}, eviction.RequestedTimeIndex, eviction.IndexRequestedTime) == nil {
		w.Error("the guard does not index RescheduleRequests")
	}
	ctx, stop := context.WithCancel(w.Context())
	r.stop = stop
	go func() { r.done <- mgr.Start(ctx) }()
	w.Cleanup(stop)
	return r
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// probe reports whether a kubelet's probe succeeds.
func (r *replica) probe(path string) bool {
	resp, err := http.Get("http://" + r.health + path)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// mount writes the content of the Secret into the replica's directory, as a kubelet does.
func (w *world) mount(r *replica) {
	w.Helper()
	w.Read(w.secret)
	for name, data := range w.secret.Data {
		next := filepath.Join(r.dir, "next")
		w.Must(os.WriteFile(next, data, 0o600))
		w.Must(os.Rename(next, filepath.Join(r.dir, name)))
	}
}

// serves returns the certificate that the replica serves, and an error if the API server would not trust it.
func (w *world) serves(r *replica) (*x509.Certificate, error) {
	w.Helper()
	conn, err := tls.Dial("tcp", r.webhook, &tls.Config{RootCAs: w.trusted(), ServerName: host, Time: w.clock.Now})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0], nil
}

func eventually(t *testing.T, reason string, ok func() bool) {
	t.Helper()
	for range 300 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("never: %s", reason)
}

func TestReplicasAreReadyOnceTheyServeAndStaySoThroughARenewal(t *testing.T) {
	w := newWorld(t)
	o := guard.Options{Certificates: guard.CertificatesSelf}
	a, b := w.start(o), w.start(o)
	eventually(t, "a certificate is made", func() bool { return w.Read(w.secret) && len(w.secret.Data["tls.crt"]) > 0 })
	eventually(t, "both live", func() bool { return a.probe("/healthz") && b.probe("/healthz") })
	if a.probe("/readyz") || b.probe("/readyz") {
		t.Error("Ready without a certificate")
	}
	w.mount(a)
	eventually(t, "the first is Ready", func() bool { return a.probe("/readyz") })
	if b.probe("/readyz") {
		t.Error("its kubelet has not come by yet")
	}
	w.mount(b)
	eventually(t, "the second is Ready", func() bool { return b.probe("/readyz") })
	first := w.certificate()
	for _, r := range []*replica{a, b} {
		if got, err := w.serves(r); err != nil || !got.Equal(first) {
			t.Errorf("serves %v, %v", got, err)
		}
	}
	w.clock.SetTime(w.clock.Now().Add(300 * 24 * time.Hour))
	eventually(t, "it is renewed", func() bool { return !w.certificate().Equal(first) })
	second := w.certificate()
	eventually(t, "the API server is told", func() bool {
		_, err := second.Verify(x509.VerifyOptions{DNSName: host, Roots: w.trusted(), CurrentTime: w.clock.Now()})
		return err == nil
	})
	w.mount(a)
	eventually(t, "one serves the second, and the other the first", func() bool {
		one, errA := w.serves(a)
		other, errB := w.serves(b)
		if errA != nil || errB != nil {
			t.Fatalf("the API server cannot ask: %v, %v", errA, errB)
		}
		return one.Equal(second) && other.Equal(first)
	})
	w.clock.SetTime(first.NotAfter.Add(time.Minute))
	if b.probe("/readyz") || !a.probe("/readyz") || !b.probe("/healthz") {
		t.Error("whoever has nothing but a certificate that has expired is not Ready, and is not ended")
	}
	a.stop()
	b.stop()
	for _, r := range []*replica{a, b} {
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	}
}

func TestPortInUseEndsProcess(t *testing.T) {
	w := newWorld(t)
	w.Must(w.keep())
	dir := t.TempDir()
	w.mount(&replica{dir: dir})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.Must(err)
	defer func() { _ = l.Close() }()
	r := w.startAt(l.Addr().String(), guard.Options{CertDir: dir})
	select {
	case err := <-r.done:
		if err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it lives on, and answers nobody")
	}
}

func TestExternalCertificateMayComeLateAndIsReloaded(t *testing.T) {
	w := newWorld(t)
	w.Must(w.keep())
	r := w.start(guard.Options{Certificates: guard.CertificatesExternal})
	eventually(t, "it lives", func() bool { return r.probe("/healthz") })
	if r.probe("/readyz") {
		t.Error("Ready without a certificate")
	}
	w.mount(r)
	eventually(t, "it is Ready", func() bool { return r.probe("/readyz") })
	w.clock.SetTime(w.clock.Now().Add(300 * 24 * time.Hour))
	w.Must(w.keep())
	w.mount(r)
	eventually(t, "it serves the next", func() bool {
		got, err := w.serves(r)
		return err == nil && got.Equal(w.certificate())
	})
}

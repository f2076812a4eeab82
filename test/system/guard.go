// SPDX-License-Identifier: Apache-2.0

package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// GuardAccount is the service account of the eviction guard in a workload cluster.
var GuardAccount = client.ObjectKey{Namespace: "5spot-system", Name: "fivespot-eviction-guard"}

// GuardUser is the name of that service account in the API server.
var GuardUser = plane.ServiceAccountName(GuardAccount)

// Guarded is the namespace that WaitGuarded uses to probe the webhook.
const Guarded = "guarded"

// GuardOptions describes the eviction guard of a cluster.
type GuardOptions struct {
	// Replicas is the number of replicas. Zero means two.
	Replicas int
	// FailurePolicy is the failure policy of the webhook. Empty means the one in the manifests.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Args are appended to their command lines.
	Args []string
	// Bin is the directory of the program. Empty means DefaultBin.
	Bin string
}

// Guard is the eviction guard of a cluster: several replicas behind a Service. Its replicas are processes on this
// machine.
type Guard struct {
	// Replicas are its processes.
	Replicas []*GuardReplica
	// Service is the Service that the API server calls.
	Service *plane.Service
	// Webhook is the webhook configuration.
	Webhook *admissionregistrationv1.ValidatingWebhookConfiguration

	plane   *plane.Plane
	cluster *plane.Cluster
	// certs has the layout of a Secret that the kubelet mounts: the link ..data refers to the directory with the files.
	certs string
	stop  context.CancelFunc
}

// GuardReplica is one process of the guard.
type GuardReplica struct {
	*plane.Process

	// Address is where its webhook listens. Health and Metrics are the other endpoints.
	Address, Health, Metrics string

	// leaves means that it is being terminated.
	leaves atomic.Bool
}

// guardKinds adds the guard's kinds to the scheme of all clients.
var guardKinds = sync.OnceValue(func() error { return evictionv1.AddToScheme(plane.Scheme()) })

// NewGuard installs the eviction guard in a cluster, and returns when the API server calls it.
func NewGuard(ctx context.Context, p *plane.Plane, c *plane.Cluster, o GuardOptions) (_ *Guard, err error) {
	if err := guardKinds(); err != nil {
		return nil, err
	}
	g := &Guard{plane: p, cluster: c, certs: filepath.Join(c.Dir, "eviction-guard-certs")}
	if g.Service, err = plane.NewService(); err != nil {
		return nil, err
	}
	if err := g.install(ctx, o); err != nil {
		return nil, fmt.Errorf("installing eviction guard: %w", err)
	}
	user, err := c.ServiceAccount(ctx, GuardAccount)
	if err != nil {
		return nil, err
	}
	for i := range cmp.Or(o.Replicas, 2) {
		r, err := g.newReplica(fmt.Sprintf("eviction-guard-%s-%d", c.Name, i), user, o)
		if err != nil {
			return nil, err
		}
		g.Replicas = append(g.Replicas, r)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.stop = stop
	for _, r := range g.Replicas {
		if err := g.Start(ctx, r); err != nil {
			return nil, errors.Join(err, g.Stop())
		}
		go g.probe(watching, r)
	}
	return g, WaitGuarded(ctx, c)
}

func (g *Guard) newReplica(name string, user plane.User, o GuardOptions) (*GuardReplica, error) {
	free, err := g.plane.Ports(3)
	if err != nil {
		return nil, err
	}
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", free[i]) }
	r := &GuardReplica{Address: address(0), Health: address(1), Metrics: address(2)}
	r.Process = g.plane.NewProcess(name, filepath.Join(cmp.Or(o.Bin, DefaultBin()), "eviction-guard"), append([]string{
		"--kubeconfig=" + user.Kubeconfig, "--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", free[0]), "--webhook-cert-dir=" + g.certs,
		"--health-addr=" + r.Health, "--metrics-addr=" + r.Metrics, "--leader-elect", "--leader-election-namespace=" + GuardAccount.Namespace,
	}, o.Args...), nil, r.ready)
	return r, nil
}

func (r *GuardReplica) ready(ctx context.Context) error {
	return healthy(ctx, "http://"+r.Health+"/readyz")
}

// install applies the manifests, except for objects that a process on this machine does not need.
func (g *Guard) install(ctx context.Context, o GuardOptions) error {
	objects, err := manifests.Objects()
	if err != nil {
		return err
	}
	if err := g.NewCertificate(); err != nil {
		return err
	}
	for _, obj := range objects {
		var err error
		switch obj.GetKind() {
		case "Deployment", "PodDisruptionBudget", "Secret", "Service":
		case "CustomResourceDefinition":
			var text []byte
			if text, err = yaml.Marshal(obj); err == nil {
				err = g.cluster.InstallCRDs(ctx, text)
			}
		case "ValidatingWebhookConfiguration":
			err = g.register(ctx, obj, o)
		default:
			err = g.cluster.Client.Create(ctx, obj)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// guardPath is the path of the webhook if the certificate does not come from the guard itself.
const guardPath = "/eviction"

// register creates the webhook configuration with the address of the Service on this machine.
func (g *Guard) register(ctx context.Context, obj *unstructured.Unstructured, o GuardOptions) error {
	g.Webhook = &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, g.Webhook); err != nil {
		return err
	}
	w := &g.Webhook.Webhooks[0]
	w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://" + g.Service.Address + guardPath), CABundle: g.cluster.CA()}
	if o.FailurePolicy != "" {
		w.FailurePolicy = &o.FailurePolicy
	}
	return g.cluster.Client.Create(ctx, g.Webhook)
}

// NewCertificate replaces the certificate of the guard as the kubelet does when a Secret changes: atomically, with the
// same file names.
func (g *Guard) NewCertificate() error {
	if err := os.MkdirAll(g.certs, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(g.certs, "..")
	if err != nil {
		return err
	}
	cert, key, err := g.cluster.Serving()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
		link := filepath.Join(g.certs, name)
		if err := os.Symlink(filepath.Join("..data", name), link); err != nil && !os.IsExist(err) {
			return err
		}
	}
	fresh, data := filepath.Join(g.certs, "..data_tmp"), filepath.Join(g.certs, "..data")
	old, _ := os.Readlink(data)
	if err := errors.Join(os.Symlink(filepath.Base(dir), fresh), os.Rename(fresh, data)); err != nil || old == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(g.certs, old))
}

// Start starts a replica. When it is ready, the Service sends requests to it.
func (g *Guard) Start(ctx context.Context, r *GuardReplica) error {
	r.leaves.Store(false)
	if err := r.Start(ctx); err != nil {
		return err
	}
	g.Service.SetReady(r.Address, true)
	return nil
}

// Terminate ends a replica as its Deployment does: it gets no new connections, and then SIGTERM.
func (g *Guard) Terminate(r *GuardReplica) error {
	r.leaves.Store(true)
	g.Service.SetReady(r.Address, false)
	return r.Stop()
}

// probe updates the Service while a replica is ready or not ready, as the kubelet does.
func (g *Guard) probe(ctx context.Context, r *GuardReplica) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ready := r.ready(ctx) == nil
			g.Service.SetReady(r.Address, ready && !r.leaves.Load())
		}
	}
}

// WaitGuarded returns when the API server of a cluster calls the guard.
func WaitGuarded(ctx context.Context, c *plane.Cluster) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Guarded, Labels: map[string]string{evictionv1.GuardedLabel: "enabled"}}}
	if err := c.Client.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	nobody := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "nobody"}}
	return plane.Until(ctx, func(ctx context.Context) error {
		err := c.Client.SubResource("eviction").Create(ctx, nobody, &policyv1.Eviction{})
		if err != nil && strings.Contains(err.Error(), "Pod no longer exists") {
			return nil
		}
		return fmt.Errorf("the guard is not called: %w", err)
	})
}

// Stop ends all processes and the Service.
func (g *Guard) Stop() error {
	g.stop()
	errs := []error{g.Service.Close()}
	for _, r := range g.Replicas {
		errs = append(errs, r.Stop())
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterOptions describes a control plane. The zero value is valid.
type ClusterOptions struct {
	// AuditBodies are the API groups whose requests and responses the audit log contains. "" is the core group. For
	// other groups it has only metadata.
	AuditBodies []string
	// Controllers is the flag --controllers of kube-controller-manager. Empty means all.
	Controllers []string
	// NoScheduler omits kube-scheduler.
	NoScheduler bool
	// NodeMonitorGrace is how long a Node may be silent before it is tainted. Zero means Kubernetes' default, 50 s.
	NodeMonitorGrace time.Duration
	// APIServerArgs and ControllerManagerArgs are appended to the command lines.
	APIServerArgs, ControllerManagerArgs []string

	// signs enables the signing of kubelet certificates. It needs four inotify instances.
	signs bool
}

// Cluster is a running Kubernetes control plane.
type Cluster struct {
	// Name is its name.
	Name string
	// Dir has its certificates, kubeconfigs, logs and audit log.
	Dir string
	// URL is the address of its API server.
	URL string
	// Admin has all permissions.
	Admin User
	// Client uses Admin and reads from the API server, without a cache.
	Client client.WithWatch

	// APIServer, ControllerManager and Scheduler are its processes. Scheduler is nil with NoScheduler.
	APIServer, ControllerManager, Scheduler *Process

	bin       string
	ca        *authority
	serviceIP net.IP
	forward   *forwarder
	audit     auditLog
}

// startCluster starts a control plane with its own prefix in the plane's etcd.
func (p *Plane) startCluster(ctx context.Context, name string, o ClusterOptions) (*Cluster, error) {
	free, err := p.ports.takeMany(clusterPorts)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, Dir: filepath.Join(p.Dir, name), URL: "https://" + hostPort(free[0]), bin: p.bin, serviceIP: serviceIP(free[0])}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("preparing cluster %s: %w", name, err)
	}
	if c.Admin, err = c.User("plane-admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := c.newAPIServer(o, p.etcdURL, free[0]); err != nil {
		return nil, err
	}
	if err := c.APIServer.Start(ctx); err != nil {
		return nil, err
	}
	if c.Client, err = client.NewWithWatch(c.Admin.Config, client.Options{Scheme: Scheme()}); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.startControllers(ctx, o, free[1], free[2]); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// clusterPorts is the number of ports of a control plane.
const clusterPorts = 3

// serviceIP returns the address of the kubernetes Service. Every API server of this machine has its own range in
// 100.64.0.0/10, because the real nodes of all of them share the loopback interface.
func serviceIP(apiServerPort int) net.IP {
	i := (apiServerPort - firstBlock) / clusterPorts
	return net.IPv4(100, byte(64+i>>8), byte(i), 1).To4() //nolint:gosec // fewer than 2^14 planes fit into the ports
}

func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	var err error
	if c.ca, err = newAuthority(c.Name + "-ca"); err != nil {
		return err
	}
	serving, err := c.ca.server(c.serviceIP)
	if err != nil {
		return err
	}
	if err := serving.write(c.path("serving")); err != nil {
		return err
	}
	kubelet, err := c.ca.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	if err := kubelet.write(c.path("kubelet-client")); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("ca.crt"), c.ca.pem, 0o600); err != nil {
		return err
	}
	key, err := encodeKey(c.ca.key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("ca.key"), key, 0o600); err != nil {
		return err
	}
	return c.writeServiceAccountKey()
}

func (c *Cluster) writeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("sa.pub"), encode("PUBLIC KEY", der), 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.path("sa.key"), private, 0o600)
}

func (c *Cluster) path(elem string) string { return filepath.Join(c.Dir, elem) }

func (c *Cluster) newAPIServer(o ClusterOptions, etcdURL string, port int) error {
	if err := writeAuditPolicy(c.path("audit-policy.yaml"), o.AuditBodies); err != nil {
		return err
	}
	args := flags(map[string]string{
		"etcd-servers": etcdURL,
		"etcd-prefix":  "/" + c.Name,
		"bind-address": "127.0.0.1",
		"secure-port":  fmt.Sprint(port),
		// A loopback address may not be advertised. This one (TEST-NET-1) is never used, because the kubernetes Service
		// has no endpoints here.
		"advertise-address":        "192.0.2.1",
		"endpoint-reconciler-type": "none",
		"service-cluster-ip-range": c.serviceIP.Mask(net.CIDRMask(24, 32)).String() + "/24",
		"tls-cert-file":            c.path("serving/tls.crt"),
		"tls-private-key-file":     c.path("serving/tls.key"),
		"client-ca-file":           c.path("ca.crt"),
		// It signs no certificates; controllers log errors without it.
		"requestheader-client-ca-file":     c.path("ca.crt"),
		"requestheader-allowed-names":      "front-proxy",
		"kubelet-client-certificate":       c.path("kubelet-client/tls.crt"),
		"kubelet-client-key":               c.path("kubelet-client/tls.key"),
		"kubelet-preferred-address-types":  "InternalIP",
		"service-account-issuer":           "https://kubernetes.default.svc",
		"service-account-key-file":         c.path("sa.pub"),
		"service-account-signing-key-file": c.path("sa.key"),
		"authorization-mode":               "Node,RBAC",
		"enable-admission-plugins":         "NodeRestriction",
		"allow-privileged":                 "true",
		// The API server calls webhooks of a Service at their endpoints, because there is no kube-proxy.
		"enable-aggregator-routing": "true",
		"audit-policy-file":         c.path("audit-policy.yaml"),
		"audit-log-path":            c.auditPath(),
		"audit-log-mode":            "blocking",
		// No rotation: a reader must not lose the start of the log.
		"audit-log-maxsize": "10240",
		"profiling":         "false",
		// The defaults, 400 and 200, are for large machines. On two cores a hundred concurrent writes block the
		// watches: caches are minutes late, and controllers' writes fail with conflicts and are repeated. Priority and
		// fairness uses the sum of both.
		"max-requests-inflight":          strconv.Itoa(requestsPerCore / 2 * runtime.NumCPU()),
		"max-mutating-requests-inflight": strconv.Itoa(requestsPerCore / 2 * runtime.NumCPU()),
	})
	c.APIServer = &Process{
		name: "kube-apiserver", path: filepath.Join(c.bin, "kube-apiserver"), dir: c.Dir,
		args: append(args, o.APIServerArgs...), ready: c.apiServerReady,
	}
	return nil
}

// requestsPerCore is the number of concurrent requests of a kube-apiserver per core. Further requests wait.
const requestsPerCore = 8

func (c *Cluster) apiServerReady(ctx context.Context) error {
	cl, err := c.Admin.httpClient()
	if err != nil {
		return err
	}
	return get(ctx, cl, c.URL+"/readyz")
}

func (c *Cluster) startControllers(ctx context.Context, o ClusterOptions, kcmPort, schedulerPort int) error {
	kcm, err := c.User("system:kube-controller-manager", "system:masters")
	if err != nil {
		return err
	}
	c.ControllerManager = c.controller("kube-controller-manager", kcm, kcmPort, controllerManagerFlags(c, o))
	c.ControllerManager.args = append(c.ControllerManager.args, o.ControllerManagerArgs...)
	running := []*Process{c.ControllerManager}
	if !o.NoScheduler {
		scheduler, err := c.User("system:kube-scheduler", "system:masters")
		if err != nil {
			return err
		}
		c.Scheduler = c.controller("kube-scheduler", scheduler, schedulerPort, nil)
		running = append(running, c.Scheduler)
	}
	for _, p := range running {
		if err := p.launch(); err != nil {
			return fmt.Errorf("starting %s: %w", p.name, err)
		}
	}
	for _, p := range running {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	// Pods are rejected until the controller manager has created this object.
	return c.Wait(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}, func() error { return nil })
}

func controllerManagerFlags(c *Cluster, o ClusterOptions) map[string]string {
	f := map[string]string{
		"service-account-private-key-file": c.path("sa.key"),
		"root-ca-file":                     c.path("ca.crt"),
		// Each controller has its own user name in the audit log.
		"use-service-account-credentials": "true",
		"kube-api-qps":                    "400",
		"kube-api-burst":                  "800",
		"node-monitor-period":             "2s",
	}
	if o.signs {
		f["cluster-signing-cert-file"], f["cluster-signing-key-file"] = c.path("ca.crt"), c.path("ca.key")
	}
	if o.NodeMonitorGrace > 0 {
		f["node-monitor-grace-period"] = o.NodeMonitorGrace.String()
	}
	if len(o.Controllers) > 0 {
		f["controllers"] = join(o.Controllers)
	}
	return f
}

// controller returns the process of a Kubernetes program that connects to the API server.
func (c *Cluster) controller(name string, u User, port int, extra map[string]string) *Process {
	f := map[string]string{
		"kubeconfig":                u.Kubeconfig,
		"authentication-kubeconfig": u.Kubeconfig,
		"authorization-kubeconfig":  u.Kubeconfig,
		"leader-elect":              "false",
		"bind-address":              "127.0.0.1",
		"secure-port":               fmt.Sprint(port),
		"profiling":                 "false",
	}
	maps.Copy(f, extra)
	return &Process{
		name: name, path: filepath.Join(c.bin, name), dir: c.Dir, args: flags(f),
		ready: func(ctx context.Context) error {
			return get(ctx, insecureClient, "https://"+hostPort(port)+"/healthz")
		},
	}
}

// Stop ends its processes. The plane's Stop ends them, too. A second call does nothing.
func (c *Cluster) Stop() error {
	errs := []error{c.forward.close()}
	c.forward = nil
	for _, p := range []*Process{c.Scheduler, c.ControllerManager, c.APIServer} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}

func (u User) httpClient() (*http.Client, error) { return restHTTPClient(u.Config) }

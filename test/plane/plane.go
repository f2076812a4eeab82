// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// managementName names the management cluster, its directory and its prefix in etcd.
const managementName = "management"

// Options say what a plane consists of. The zero value runs Core and the
// infrastructure provider of the tests.
type Options struct {
	// Dir keeps everything the plane writes, for example for a look at the logs
	// later. Empty means a temporary directory that Stop removes.
	Dir string
	// Bin holds the programs; empty means $PLANE_BIN, or else bin/plane of the
	// repository.
	Bin string
	// Components are the managers to run; nil means Core and Infrastructure.
	Components []Component
	// FeatureGates of Cluster API's managers.
	FeatureGates map[string]bool
	// Args are appended to the command lines of managers.
	Args map[Component][]string
	// Management is the control plane of the management cluster. Unless told
	// otherwise it has no scheduler and only the controllers that API objects need.
	Management ClusterOptions
}

// A Plane is a management cluster with Cluster API on it, and the workload
// clusters made from it. Its methods may be called from any goroutine.
type Plane struct {
	// Dir holds everything the plane writes: a directory per cluster.
	Dir string
	// Management is the management cluster.
	Management *Cluster
	// Etcd serves all control planes of this plane.
	Etcd *Process

	bin        string
	etcdURL    string
	temporary  bool
	ports      ports
	components map[Component]*Process

	mu       sync.Mutex
	clusters []*Cluster
}

// managementControllers are what a cluster without Nodes needs.
func managementControllers() []string {
	return []string{
		"garbage-collector-controller", "namespace-controller", "serviceaccount-controller", "serviceaccount-token-controller",
		"root-ca-certificate-publisher-controller", "clusterrole-aggregation-controller",
		"validatingadmissionpolicy-status-controller", "resourcequota-controller",
	}
}

// Start runs a plane and returns when all of it is ready. ctx bounds the start
// only: the plane runs until Stop, or until this process ends.
func Start(ctx context.Context, o Options) (_ *Plane, err error) {
	p := &Plane{Dir: o.Dir, bin: o.Bin, components: map[Component]*Process{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if p.bin == "" {
		p.bin = DefaultBin()
	}
	if err := p.prepareDir(); err != nil {
		return nil, err
	}
	if o.Components == nil {
		o.Components = []Component{Core, Infrastructure}
	}
	if o.Management.Controllers == nil {
		o.Management.Controllers, o.Management.NoScheduler = managementControllers(), true
	}
	if err := p.startEtcd(ctx); err != nil {
		return nil, err
	}
	if p.Management, err = p.startCluster(ctx, managementName, o.Management); err != nil {
		return nil, err
	}
	if err := p.StartComponents(ctx, o); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Plane) prepareDir() (err error) {
	if _, err := os.Stat(filepath.Join(p.bin, "kube-apiserver")); err != nil {
		return missing(p.bin, err)
	}
	if p.Dir == "" {
		p.temporary = true
		p.Dir, err = os.MkdirTemp("", "plane-")
		return err
	}
	return os.MkdirAll(p.Dir, 0o700)
}

// DefaultBin is where the programs of the plane are: $PLANE_BIN, or else
// bin/plane of the repository.
func DefaultBin() string {
	if bin := os.Getenv("PLANE_BIN"); bin != "" { //nolint:forbidigo // how make tells every test binary
		return bin
	}
	return filepath.Join(Repository(), "bin", "plane")
}

// Repository is the root of the repository that the working directory is in. Binaries do not contain
// paths of the machine that built them.
func Repository() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// missing explains an error about a file that make was to build.
func missing(bin string, err error) error {
	return fmt.Errorf("the programs of the local plane are not in %s: run `make plane-binaries` or set PLANE_BIN: %w", bin, err)
}

func (p *Plane) startEtcd(ctx context.Context) error {
	free, err := p.ports.takeMany(2)
	if err != nil {
		return err
	}
	p.etcdURL = "http://" + hostPort(free[0])
	peer := "http://" + hostPort(free[1])
	p.Etcd = &Process{
		name: "etcd", path: filepath.Join(p.bin, "etcd"), dir: p.Dir,
		args: flags(map[string]string{
			"data-dir":                    filepath.Join(p.Dir, "etcd"),
			"listen-client-urls":          p.etcdURL,
			"advertise-client-urls":       p.etcdURL,
			"listen-peer-urls":            peer,
			"initial-advertise-peer-urls": peer,
			"initial-cluster":             "default=" + peer,
			"log-level":                   "warn",
			// Nothing here has to survive the machine.
			"unsafe-no-fsync": "true",
		}),
		ready: func(ctx context.Context) error { return get(ctx, insecureClient, p.etcdURL+"/health") },
	}
	return p.Etcd.Start(ctx)
}

// Component is the process of a manager, or nil when the plane does not run it.
func (p *Plane) Component(name Component) *Process { return p.components[name] }

// Core is the process of Cluster API's core manager.
func (p *Plane) Core() *Process { return p.components[Core] }

// Bin is the path of a program of the plane.
func (p *Plane) Bin(name string) string { return filepath.Join(p.bin, name) }

// Ports returns n free ports that no other plane on this machine will use.
func (p *Plane) Ports(n int) ([]int, error) { return p.ports.takeMany(n) }

// NewCluster starts another control plane, which Cluster API does not know.
func (p *Plane) NewCluster(ctx context.Context, name string, o ClusterOptions) (*Cluster, error) {
	c, err := p.startCluster(ctx, name, o)
	if err != nil {
		return nil, fmt.Errorf("starting cluster %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clusters = append(p.clusters, c)
	return c, nil
}

// NewProcess describes a program that shares the plane's life. Start runs it;
// ready may be nil.
func (p *Plane) NewProcess(name, path string, args, env []string, ready func(context.Context) error) *Process {
	proc := NewProcess(p.Dir, name, path, args, env, ready)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.components[Component(name)] = proc
	return proc
}

// Stop ends all processes and removes the directory if it was a temporary one.
// Stopping twice is a success.
func (p *Plane) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	// The provider first, and politely: it has nodes to take down.
	for _, proc := range p.components {
		errs = append(errs, proc.Stop())
	}
	for _, c := range slices.Backward(p.clusters) {
		errs = append(errs, c.Stop())
	}
	if p.Management != nil {
		errs = append(errs, p.Management.Stop())
	}
	if p.Etcd != nil {
		errs = append(errs, p.Etcd.Kill())
	}
	p.ports.release()
	if p.temporary {
		errs = append(errs, os.RemoveAll(p.Dir))
	}
	return errors.Join(errs...)
}

// DumpLogs writes the last lines of every log to w, for a test that failed.
func (p *Plane) DumpLogs(w io.Writer, lines int) {
	files, err := filepath.Glob(filepath.Join(p.Dir, "*", "*.log"))
	if err != nil {
		return
	}
	for _, f := range files {
		proc := Process{name: trimExt(filepath.Base(f)), dir: filepath.Dir(f)}
		if proc.name != "audit" {
			_, _ = fmt.Fprintf(w, "==> %s\n%s\n", f, proc.LogTail(lines))
		}
	}
}

func trimExt(name string) string { return name[:len(name)-len(filepath.Ext(name))] }

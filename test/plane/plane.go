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

// managementName is the name of the management cluster, of its directory, and of its prefix in etcd.
const managementName = "management"

// Options are the options of Start. The zero value runs Core and the infrastructure provider of the tests.
type Options struct {
	// Dir is the directory for all files, for example to read logs later. Empty means a temporary directory that Stop
	// removes.
	Dir string
	// Bin is the directory of the programs. Empty means $PLANE_BIN, or else bin/plane of the repository.
	Bin string
	// Components are the managers to run. Nil means Core and Infrastructure.
	Components []Component
	// FeatureGates are the feature gates of Cluster API's managers.
	FeatureGates map[string]bool
	// Args are appended to the command lines of managers.
	Args map[Component][]string
	// Management describes the control plane of the management cluster. By default it has no scheduler and only the
	// controllers that API objects need.
	Management ClusterOptions
}

// Plane is a management cluster with Cluster API, and its workload clusters. It is safe for concurrent use.
type Plane struct {
	// Dir is the directory for all files, with a directory per cluster.
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

// managementControllers returns the controllers that a cluster without Nodes needs.
func managementControllers() []string {
	return []string{
		"garbage-collector-controller", "namespace-controller", "serviceaccount-controller", "serviceaccount-token-controller",
		"root-ca-certificate-publisher-controller", "clusterrole-aggregation-controller",
		"validatingadmissionpolicy-status-controller", "resourcequota-controller",
	}
}

// Start starts a plane and returns when it is ready. ctx bounds only the start: the plane runs until Stop, or until
// this process ends.
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

// DefaultBin returns the directory of the plane's programs: $PLANE_BIN, or else bin/plane of the repository.
func DefaultBin() string {
	if bin := os.Getenv("PLANE_BIN"); bin != "" { //nolint:forbidigo // make configures every test binary so
		return bin
	}
	return filepath.Join(Repository(), "bin", "plane")
}

// Repository returns the root of the repository that contains the working directory. Binaries do not contain paths of
// the machine that built them.
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

// missing returns an error about a file that make builds.
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
			// The data need not survive a crash of the machine.
			"unsafe-no-fsync": "true",
		}),
		ready: func(ctx context.Context) error { return get(ctx, insecureClient, p.etcdURL+"/health") },
	}
	return p.Etcd.Start(ctx)
}

// Component returns the process of a manager, or nil if the plane does not run it.
func (p *Plane) Component(name Component) *Process { return p.components[name] }

// Core returns the process of Cluster API's core manager.
func (p *Plane) Core() *Process { return p.components[Core] }

// Bin returns the path of a program of the plane.
func (p *Plane) Bin(name string) string { return filepath.Join(p.bin, name) }

// Ports returns n free ports that no other plane on this machine will use.
func (p *Plane) Ports(n int) ([]int, error) { return p.ports.takeMany(n) }

// NewCluster starts another control plane, without a Cluster object.
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

// NewProcess returns a process that Stop ends with the plane. Start runs it. ready may be nil.
func (p *Plane) NewProcess(name, path string, args, env []string, ready func(context.Context) error) *Process {
	proc := NewProcess(p.Dir, name, path, args, env, ready)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.components[Component(name)] = proc
	return proc
}

// Stop ends all processes and removes a temporary directory. A second call does nothing.
func (p *Plane) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	// Stop the provider first, with SIGTERM, because it removes its nodes.
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

// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/crd"
)

// Component is a manager of the plane, and the name of its program.
type Component string

// The managers that a plane can run.
const (
	// Core is Cluster API's core manager.
	Core Component = "capi-core"
	// KubeadmBootstrap reconciles KubeadmConfigs.
	KubeadmBootstrap Component = "capi-kubeadm-bootstrap"
	// KubeadmControlPlane reconciles KubeadmControlPlanes.
	KubeadmControlPlane Component = "capi-kubeadm-control-plane"
	// Dev reconciles DevClusters and DevMachines with the in-memory backend.
	Dev Component = "capi-dev"
	// Infrastructure is the provider in test/infrastructure.
	Infrastructure Component = "plane-infrastructure"
)

// InMemory returns the components that an in-memory Cluster needs.
func InMemory() []Component { return []Component{Core, KubeadmBootstrap, KubeadmControlPlane, Dev} }

// Everything returns all components.
func Everything() []Component { return append(InMemory(), Infrastructure) }

// nodeGrace is how long the provider may take to remove real nodes.
const nodeGrace = 25 * time.Second

// StartComponents installs and runs o.Components. Start calls it, too; a caller that installs Cluster API in another
// way passes an empty list to Start. Existing objects remain; their webhooks get addresses on this machine.
func (p *Plane) StartComponents(ctx context.Context, o Options) error {
	// Installation mostly waits for CRDs, so all components install concurrently.
	procs := make([]*Process, len(o.Components))
	errs := make([]error, len(o.Components))
	var wg sync.WaitGroup
	for i, name := range o.Components {
		wg.Go(func() { procs[i], errs[i] = p.prepareComponent(ctx, name, o) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("preparing components: %w", err)
	}
	// A manager ends if a kind of another component is missing, so all start after the installation.
	for i, name := range o.Components {
		p.components[name] = procs[i]
		if err := procs[i].launch(); err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
	}
	for _, proc := range procs {
		if err := proc.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) prepareComponent(ctx context.Context, name Component, o Options) (*Process, error) {
	m := managerOptions{name: string(name)}
	var err error
	if name == Infrastructure {
		m.plain = true
		m.args = append(m.args, "--bin="+p.bin, "--dir="+p.Dir)
		m.manifests, err = parseManifests(crd.All())
	} else {
		m.args = []string{"--v=2"}
		m.manifests, err = readManifests(p.bin, m.name)
	}
	if err != nil {
		return nil, err
	}
	if gates := gates(name, o.FeatureGates); gates != "" && name != Infrastructure {
		m.args = append(m.args, "--feature-gates="+gates)
	}
	switch name {
	case Core, KubeadmBootstrap, KubeadmControlPlane:
		m.args = append(m.args, "--insecure-diagnostics=true")
	case Dev:
		first, last, err := p.ports.takeRange()
		if err != nil {
			return nil, err
		}
		m.args = append(m.args, fmt.Sprintf("--inmemory-debug-port=%d", first), fmt.Sprintf("--inmemory-min-port=%d", first+1), fmt.Sprintf("--inmemory-max-port=%d", last))
	case Infrastructure:
	}
	m.args = append(m.args, o.Args[name]...)
	proc, err := p.newManager(ctx, p.Management, m)
	if err == nil && name == Infrastructure {
		proc.grace = nodeGrace
	}
	return proc, err
}

// gates returns the value of --feature-gates. Core gets all gates. The other managers support only a few, and do not
// start with an unknown one.
func gates(name Component, want map[string]bool) string {
	known := map[string]bool{"ClusterTopology": true, "MachinePool": true, "PriorityQueue": true, "ReconcilerRateLimiting": true}
	var out []string
	for _, g := range slices.Sorted(maps.Keys(want)) {
		if name == Core || known[g] {
			out = append(out, fmt.Sprintf("%s=%t", g, want[g]))
		}
	}
	return join(out)
}

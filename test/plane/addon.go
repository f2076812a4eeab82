// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AddonOptions describes the manager of a provider that is not part of Cluster API.
type AddonOptions struct {
	// Name is its name.
	Name string
	// Path is its program. It has the flags of Cluster API's managers.
	Path string
	// Manifests are YAML documents. Their CRDs and webhooks are installed. The webhooks get an address on this machine.
	Manifests [][]byte
	// ServiceAccount is its service account. The caller must grant its permissions.
	ServiceAccount client.ObjectKey
	// URLFlag is the flag for the URL of its webhook server. Empty means none.
	URLFlag string
	// Args are appended to its command line.
	Args []string
}

// NewAddon installs a provider in the management cluster and returns its manager, which is not started yet. The plane's
// Stop ends it.
func (p *Plane) NewAddon(ctx context.Context, o AddonOptions) (*Process, error) {
	manifests, err := parseManifests(bytes.Join(o.Manifests, []byte("\n---\n")))
	if err != nil {
		return nil, fmt.Errorf("reading manifests of %s: %w", o.Name, err)
	}
	proc, err := p.newManager(ctx, p.Management, managerOptions{
		name: o.Name, path: o.Path, manifests: manifests, account: o.ServiceAccount, urlFlag: o.URLFlag,
		args: append([]string{"--insecure-diagnostics=true"}, o.Args...),
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.components[Component(o.Name)] = proc
	return proc, nil
}

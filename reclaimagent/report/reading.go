// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"slices"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// controlPlaneLabels mark the Nodes of the control plane. Older distributions use the second.
var controlPlaneLabels = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// reading returns what a hold depends on. A taint counts only for a hold: it does not end the watch for processes. The
// metadata of a Node has neither taints nor a machine ID; then whole is false.
func (r *Reporter) reading(n *node, whole bool) hold.Node {
	read := hold.Node{
		Requested: n.requested() || slices.Contains(n.Spec.Taints, returning),
		Hold:      n.Metadata.Annotations[reclaim.HoldAnnotation],
	}
	if err := r.identify(n); whole && err != nil {
		read.Foreign = err.Error()
	}
	for _, label := range controlPlaneLabels {
		_, is := n.Metadata.Labels[label]
		read.ControlPlane = read.ControlPlane || is
	}
	return read
}

// beforeRead returns whether to read the taints, and the function for the result of the read.
func (r *Reporter) beforeRead() (taints bool, observe func(hold.Node)) {
	if r.o.BeforeRead == nil {
		return false, func(hold.Node) {}
	}
	return r.o.BeforeRead()
}

// AwaitRequested waits until the Node has a request that this agent did not write. It ignores the request of another
// machine, whose Node has the same name. It reads the whole Node, because its metadata has no taints. It returns nil or
// the error of ctx.
func (r *Reporter) AwaitRequested(ctx context.Context) error {
	log := r.newFailureLog("Checking whether the machine was requested")
	for {
		if err := retry.Sleep(ctx, retry.Jitter(clearedEvery)); err != nil {
			return err
		}
		_, observe := r.beforeRead()
		n, err := r.get(ctx, "")
		if err == nil {
			observe(r.reading(n, true))
			if !n.requested() {
				continue
			}
			err = r.identify(n)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil:
			log.warn(err)
		}
	}
}

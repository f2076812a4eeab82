// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// controlPlaneLabels mark the Nodes of the control plane. Older distributions use the second.
var controlPlaneLabels = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

func (n *node) reading() hold.Node {
	r := hold.Node{Requested: n.requested(), Hold: n.Metadata.Annotations[reclaim.HoldAnnotation]}
	for _, label := range controlPlaneLabels {
		_, is := n.Metadata.Labels[label]
		r.ControlPlane = r.ControlPlane || is
	}
	return r
}

// beforeRead returns the function for the result of a read.
func (r *Reporter) beforeRead() func(hold.Node) {
	if r.o.BeforeRead == nil {
		return func(hold.Node) {}
	}
	return r.o.BeforeRead()
}

// AwaitRequested waits until the Node has a request that this agent did not write. It ignores the request of another
// machine, whose Node has the same name. It returns nil or the error of ctx.
func (r *Reporter) AwaitRequested(ctx context.Context) error {
	log := r.newFailureLog("Checking whether the machine was requested")
	for {
		if err := retry.Sleep(ctx, retry.Jitter(clearedEvery)); err != nil {
			return err
		}
		observe := r.beforeRead()
		n, err := r.get(ctx, kubeapi.MetadataOnly)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && n.requested():
			if n, err = r.get(ctx, ""); err == nil {
				err = r.identify(n)
			}
		}
		if err != nil {
			log.warn(err)
			continue
		}
		if observe(n.reading()); n.requested() {
			return nil
		}
	}
}

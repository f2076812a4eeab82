// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// Reading is what the agent has read of its Node.
type Reading struct {
	// Requested means that the Node has a request.
	Requested bool
	// ControlPlane means that the Node is part of the control plane.
	ControlPlane bool
	// Hold is the value of [reclaim.HoldAnnotation].
	Hold string
}

// controlPlaneLabels mark the Nodes of the control plane. Older distributions use the second.
var controlPlaneLabels = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

func (n *node) reading() Reading {
	r := Reading{Requested: n.requested(), Hold: n.Metadata.Annotations[reclaim.HoldAnnotation]}
	for _, label := range controlPlaneLabels {
		_, is := n.Metadata.Labels[label]
		r.ControlPlane = r.ControlPlane || is
	}
	return r
}

// observe passes a reading on.
func (r *Reporter) observe(n *node) {
	if r.o.OnRead != nil {
		r.o.OnRead(n.reading())
	}
}

// AwaitRequested waits until the Node has a request that this agent did not write. It returns nil or the error of ctx.
// It does not pass on a Node without a request, because a report may be concurrent.
func (r *Reporter) AwaitRequested(ctx context.Context) error {
	log := r.newFailureLog("Checking whether the machine was requested")
	for {
		if err := retry.Sleep(ctx, retry.Jitter(clearedEvery)); err != nil {
			return err
		}
		n, err := r.get(ctx, kubeapi.MetadataOnly)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			log.warn(err)
		case n.requested():
			r.observe(n)
			return nil
		}
	}
}

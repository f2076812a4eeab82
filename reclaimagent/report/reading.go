// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// controlPlaneLabels mark the Nodes of the control plane. Older distributions use the second.
var controlPlaneLabels = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// read reads the Node, or only its metadata, and passes it to the Holder. It returns the Node and [ErrHostIdentity] if
// it describes another machine. Its metadata has neither taints nor a machine ID.
func (r *Reporter) read(ctx context.Context, whole bool, attempts *attempts) (*node, error) {
	accept := kubeapi.MetadataOnly
	if whole {
		accept = ""
	}
	var n *node
	var mismatch error
	err := attempts.do(func() (err error) {
		started := r.o.Now()
		if n, err = r.get(ctx, accept); err == nil {
			mismatch = r.observe(n, whole, started) // before the pods are held again
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return n, mismatch
}

// observe passes a read to the Holder. It returns [ErrHostIdentity] if the Node describes another machine.
func (r *Reporter) observe(n *node, whole bool, started time.Time) (mismatch error) {
	observed := hold.Node{
		// A taint counts only for a hold: it does not end the watch for processes.
		Requested: n.requested() || slices.Contains(n.Spec.Taints, reclaimTaint),
		Report:    n.Metadata.Annotations[reclaim.HoldAnnotation],
		Partial:   !whole,
	}
	if whole {
		mismatch = r.identify(n)
	}
	if mismatch != nil {
		observed.Foreign = mismatch.Error()
	}
	for _, label := range controlPlaneLabels {
		_, is := n.Metadata.Labels[label]
		observed.ControlPlane = observed.ControlPlane || is
	}
	r.o.Holder.Observe(observed, started)
	return mismatch
}

// reads returns the attempts of the reads of one function.
func (r *Reporter) reads() *attempts {
	return &attempts{now: r.o.Now, unblock: func(on bool) { r.o.Holder.UnblockRead(on) }}
}

// Refresh passes the Node to the Holder, if it can be read within a timeout.
func (r *Reporter) Refresh(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _ = r.read(ctx, true, r.reads())
}

// AwaitRequested waits until the Node has a request of any client. It ignores the request of another machine, whose
// Node has the same name. It returns nil or the error of ctx.
func (r *Reporter) AwaitRequested(ctx context.Context) error {
	whole := func() bool { return true }
	return r.await(ctx, "Checking whether the machine was requested", whole, func(n *node, err error) bool {
		return err == nil && n.requested()
	})
}

// await reads the Node again and again until done returns true. It logs failures as failures of action. It returns nil
// or the error of ctx.
func (r *Reporter) await(ctx context.Context, action string, whole func() bool, done func(*node, error) bool) error {
	log := r.newFailureLog(action)
	attempts := r.reads()
	for {
		if err := retry.Sleep(ctx, retry.Jitter(nodeReadInterval)); err != nil {
			return err
		}
		n, err := r.read(ctx, whole(), attempts)
		switch {
		case done(n, err):
			return nil
		case err != nil && ctx.Err() == nil:
			log.warn(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// mostNamed bounds how many NodeAttachments a log line names.
const mostNamed = 20

// GateOff runs instead of the reconcilers while the feature gate is off. When the manager becomes the leader, GateOff
// logs the NodeAttachments that list memberships which 5-Spot has drained.
type GateOff struct {
	// Live lists NodeAttachments. The manager keeps no cache of them while the gate is off.
	Live client.Reader
	// Reader reads Clusters from the manager's cache.
	Reader client.Reader
	// WatchFilter is the value of Cluster API's watch label, empty for everything.
	WatchFilter string
}

// Start implements manager.Runnable. It returns no error, because an error would stop the manager.
func (g GateOff) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx)
	list := &expv1.NodeAttachmentList{}
	if err := g.Live.List(ctx, list); err != nil {
		log.Error(err, "Listing NodeAttachments")
		return nil
	}
	var names []string
	for i := range list.Items {
		if a := &list.Items[i]; len(a.Spec.Memberships) > 0 && g.serves(ctx, a) {
			names = append(names, a.Namespace+"/"+a.Name)
		}
	}
	if len(names) > 0 {
		log.Error(fmt.Errorf("the feature gate NodeDetach is off: turn it on, or restore the members by hand"),
			"Nodes stay detached from load balancers", "count", len(names), "NodeAttachments", names[:min(len(names), mostNamed)])
	}
	return nil
}

// serves reports whether the Cluster of a NodeAttachment is one that this manager watches.
func (g GateOff) serves(ctx context.Context, a *expv1.NodeAttachment) bool {
	cluster := &clusterv1.Cluster{}
	if err := g.Reader.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.ClusterName}, cluster); err != nil {
		return false // Another manager watches that namespace, or the Cluster is gone.
	}
	return workload.MatchesFilter(g.WatchFilter, cluster)
}

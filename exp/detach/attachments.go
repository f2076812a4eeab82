// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

// leaves reports whether the machine leaves. It stays drained even at a LoadBalancer that is being deleted.
func leaves(a *expv1.NodeAttachment) bool {
	return a.Spec.Trigger == string(plan.Departure) || a.Spec.Trigger == string(plan.Emergency)
}

// mustDetach reports whether the Node must be detached from this load balancer.
func mustDetach(a *expv1.NodeAttachment, lb string) bool {
	return a.Spec.Trigger != "" && (len(a.Spec.LoadBalancers) == 0 || slices.Contains(a.Spec.LoadBalancers, lb))
}

// mustDetachFrom is mustDetach for a LoadBalancer, of which control plane Nodes may not be members.
func mustDetachFrom(a *expv1.NodeAttachment, lb *expv1.LoadBalancer) bool {
	return mustDetach(a, lb.Name) && (lb.Spec.ControlPlane || !a.Spec.ControlPlane)
}

// nodeAbandoned reports whether the NodeAttachment of a missing Node is being deleted. The Node is not expected to come
// back.
func nodeAbandoned(a *expv1.NodeAttachment) bool {
	return !a.DeletionTimestamp.IsZero() && a.Spec.Trigger == string(plan.Gone)
}

// current reports whether progress matches the present generation of the LoadBalancer and identity of the Node.
func current(p *expv1.BalancerProgress, lb *expv1.LoadBalancer, a *expv1.NodeAttachment) bool {
	return p != nil && p.Generation == lb.Generation && p.DiscoveryHash == discoveryHash(a)
}

// discoveryHash returns a hash of the trigger, the Node's UID, its provider ID and its addresses. Discovery runs again
// when the hash changes.
func discoveryHash(a *expv1.NodeAttachment) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{a.Spec.Trigger, string(a.Spec.NodeUID), a.Spec.ProviderID}, a.Spec.Addresses...), " ")))
	return hex.EncodeToString(sum[:8])
}

// progressOf returns the last reported progress at a LoadBalancer, nil if there is none.
func progressOf(a *expv1.NodeAttachment, name string) *expv1.BalancerProgress {
	i := slices.IndexFunc(a.Status.LoadBalancers, func(p expv1.BalancerProgress) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &a.Status.LoadBalancers[i]
}

// attachmentsOf lists the NodeAttachments of a Cluster. It compares spec.clusterName, because people may remove labels.
// The results may share memory with the cache: do not change them.
func attachmentsOf(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (found []expv1.NodeAttachment, err error) {
	list := &expv1.NodeAttachmentList{}
	if err := reader.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeAttachments: %w", err)
	}
	for i := range list.Items {
		if a := list.Items[i]; a.Spec.ClusterName == cluster.Name {
			found = append(found, a)
		}
	}
	return found, nil
}

// attachment reads the NodeAttachment of a Node, nil if there is none.
func attachment(ctx context.Context, reader client.Reader, cluster client.ObjectKey, node string) (*expv1.NodeAttachment, error) {
	if node == "" {
		return nil, nil
	}
	a := &expv1.NodeAttachment{}
	switch err := reader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: AttachmentName(cluster.Name, node)}, a); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading NodeAttachment: %w", err)
	case a.Spec.ClusterName != cluster.Name || a.Spec.NodeName != node:
		return nil, fmt.Errorf("NodeAttachment %s is of Node %s in Cluster %s: delete it", a.Name, a.Spec.NodeName, a.Spec.ClusterName)
	}
	return a, nil
}

// AttachmentName returns the name of the NodeAttachment of a Node. It ends with a hash if the plain name would be too
// long or ambiguous.
func AttachmentName(cluster, node string) string {
	name := cluster + "." + node
	if len(name) <= 253 && !strings.Contains(cluster, ".") {
		return name
	}
	sum := sha256.Sum256([]byte(cluster + "/" + node))
	return strings.TrimRight(name[:min(len(name), 240)], ".-") + "-" + hex.EncodeToString(sum[:6])
}

// balancersOf returns the LoadBalancers of a Cluster.
func balancersOf(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]expv1.LoadBalancer, error) {
	list := &expv1.LoadBalancerList{}
	if err := reader.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing LoadBalancers: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(b expv1.LoadBalancer) bool { return b.Spec.ClusterName != cluster.Name }), nil
}

// notDeleting returns the LoadBalancers that are not being deleted.
func notDeleting(balancers []expv1.LoadBalancer) []expv1.LoadBalancer {
	return slices.DeleteFunc(slices.Clone(balancers), func(b expv1.LoadBalancer) bool { return !b.DeletionTimestamp.IsZero() })
}

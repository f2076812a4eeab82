// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
)

var (
	unreachableBalancers = prometheus.NewDesc("fivespot_load_balancers_unreachable",
		"LoadBalancers that did not answer the last call, by namespace and Cluster. They are called only while a Node leaves or comes back. Absent for a Cluster without LoadBalancers. Reported by the leader only.",
		[]string{"namespace", "cluster"}, nil)
	detachingNodes = prometheus.NewDesc("fivespot_detaching_nodes",
		"How many Nodes are in each phase with a LoadBalancer, by namespace, Cluster and phase of the NodeAttachment's status; a Node counts once for each LoadBalancer. Reported by the leader only.",
		[]string{"namespace", "cluster", "phase"}, nil)
)

// Collector counts LoadBalancers and NodeAttachments in the cache at each scrape. It keeps no state.
type Collector struct {
	// Reader reads LoadBalancers and NodeAttachments from the manager's cache.
	Reader client.Reader
	// Elected is closed when this replica becomes the leader. Until then, Collect returns no metrics.
	Elected <-chan struct{}
}

// Describe implements prometheus.Collector.
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- unreachableBalancers
	ch <- detachingNodes
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	balancers, attachments := &expv1.LoadBalancerList{}, &expv1.NodeAttachmentList{}
	if err := c.Reader.List(ctx, balancers, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(unreachableBalancers, err)
		return
	}
	if err := c.Reader.List(ctx, attachments, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(detachingNodes, err)
		return
	}
	unreachable := map[client.ObjectKey]int{}
	for i := range balancers.Items {
		lb := &balancers.Items[i]
		n := 0
		if conditions.IsFalse(lb, expv1.ReachableCondition) {
			n = 1
		}
		unreachable[client.ObjectKey{Namespace: lb.Namespace, Name: lb.Spec.ClusterName}] += n
	}
	for k, n := range unreachable {
		ch <- prometheus.MustNewConstMetric(unreachableBalancers, prometheus.GaugeValue, float64(n), k.Namespace, k.Name)
	}
	type key struct{ namespace, cluster, phase string }
	nodes := map[key]int{}
	for i := range attachments.Items {
		a := &attachments.Items[i]
		for _, p := range a.Status.LoadBalancers {
			nodes[key{a.Namespace, a.Spec.ClusterName, string(p.Phase)}]++
		}
	}
	for k, n := range nodes {
		ch <- prometheus.MustNewConstMetric(detachingNodes, prometheus.GaugeValue, float64(n), k.namespace, k.cluster, k.phase)
	}
}

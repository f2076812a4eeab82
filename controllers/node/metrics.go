// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

var unprotectedMachines = prometheus.NewDesc("fivespot_unprotected_machines",
	"Machines with killIfCommands whose reclaim agent is not known to be watching, by namespace, Cluster and reason of OwnerProtected. Reported by the leader only.",
	[]string{"namespace", "cluster", "reason"}, nil)

// collector counts from the cache at each scrape.
type collector struct {
	reader client.Reader
	// elected is closed when this replica becomes the leader.
	elected <-chan struct{}
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) { ch <- unprotectedMachines }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list := &v1alpha1.ScheduledMachineList{}
	if err := c.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(unprotectedMachines, err)
		return
	}
	type key struct{ namespace, cluster, reason string }
	counts := map[key]int{}
	for i := range list.Items {
		sm := &list.Items[i]
		if p := conditions.Get(sm, v1alpha1.OwnerProtectedCondition); p != nil && p.Status != metav1.ConditionTrue {
			counts[key{sm.Namespace, sm.Spec.ClusterName, p.Reason}]++
		}
	}
	for k, n := range counts {
		ch <- prometheus.MustNewConstMetric(unprotectedMachines, prometheus.GaugeValue, float64(n), k.namespace, k.cluster, k.reason)
	}
}

// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// lateDepartures is a collector that counts late Machines from the cache at each scrape.
type lateDepartures struct {
	fleet

	clock clock.PassiveClock
}

// Describe implements prometheus.Collector.
func (lateDepartures) Describe(ch chan<- *prometheus.Desc) { ch <- departuresLate }

// Collect implements prometheus.Collector.
func (l lateDepartures) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list, err := l.list(ctx)
	leaving := &clusterv1.MachineList{}
	if len(list) > 0 {
		err = errors.Join(err, l.reader.List(ctx, leaving, client.UnsafeDisableDeepCopy))
	}
	if err != nil {
		ch <- prometheus.NewInvalidMetric(departuresLate, err)
		return
	}
	now, byName := l.clock.Now(), deletedMachines(leaving)
	counts := map[client.ObjectKey]float64{}
	for i := range list {
		sm := &list[i]
		cluster := client.ObjectKey{Namespace: sm.Namespace, Name: sm.Spec.ClusterName}
		counts[cluster] += 0 // Every Cluster has a series.
		if m := byName[client.ObjectKeyFromObject(sm)]; m != nil && isLate(m, sm, now) {
			counts[cluster]++
		}
	}
	for cluster, n := range counts {
		ch <- prometheus.MustNewConstMetric(departuresLate, prometheus.GaugeValue, n, cluster.Namespace, cluster.Name)
	}
}

// deletedMachines returns the Machines that are being deleted, by their ScheduledMachine.
func deletedMachines(list *clusterv1.MachineList) map[client.ObjectKey]*clusterv1.Machine {
	deleted := map[client.ObjectKey]*clusterv1.Machine{}
	for i := range list.Items {
		if m := &list.Items[i]; !m.DeletionTimestamp.IsZero() {
			deleted[client.ObjectKey{Namespace: m.Namespace, Name: children.ParentOf(m)}] = m
		}
	}
	return deleted
}

// isLate reports whether a departure has lasted longer than its budget.
func isLate(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) bool {
	deadline := children.DeadlineOf(m, sm, now)
	return !deadline.IsZero() && now.After(deadline)
}

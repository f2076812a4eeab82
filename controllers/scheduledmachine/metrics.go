// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

var (
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_transitions_total",
		Help: "Changes of phase, by old and new phase.",
	}, []string{"from", "to"})
	transitionLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fivespot_transition_lag_seconds",
		Help:    "Time from the edge of a window to the first action that it requires.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
	})
	evaluations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_schedule_evaluations_total",
		Help: "Times a schedule was evaluated.",
	})
	killSwitchActivations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_kill_switch_activations_total",
		Help: "Times a ScheduledMachine became Terminated.",
	})
	machines = prometheus.NewDesc("fivespot_machines",
		"ScheduledMachines by phase, namespace and Cluster. Reported by the leader only.", []string{"phase", "namespace", "cluster"}, nil)
	machineConditions = prometheus.NewDesc("fivespot_machine_conditions",
		"ScheduledMachines by the status and reason of each condition, namespace and Cluster. Reported by the leader only.",
		[]string{"condition", "status", "reason", "namespace", "cluster"}, nil)
	departuresLate = prometheus.NewDesc("fivespot_departures_late",
		"Machines that still exist after the end of their gracefulShutdownTimeout, by namespace and Cluster. Reported by the leader only.",
		[]string{"namespace", "cluster"}, nil)
)

// registerMetrics registers the metrics of this package. The fleet counts machines from the cache at each scrape, so
// that deleted machines disappear from the metrics.
func registerMetrics(f fleet) error {
	for _, c := range []prometheus.Collector{transitions, transitionLag, evaluations, killSwitchActivations, f} {
		if err := metrics.Registry.Register(c); err != nil {
			return err
		}
	}
	for _, from := range append([]v1alpha1.Phase{""}, v1alpha1.Phases...) {
		for _, to := range v1alpha1.Phases {
			if from != to {
				transitions.WithLabelValues(string(from), string(to)) // The series starts at zero, so that the first transition is an increase.
			}
		}
	}
	return nil
}

// observeLag measures the time from an announced edge of the window to the first action for it. It measures each edge
// once.
func (r *Reconciler) observeLag(s *scope, now time.Time) {
	st := s.before.Status
	edge := st.NextActivation
	if st.InSchedule {
		edge = st.NextCleanup
	}
	if edge == nil || edge.After(now) {
		return
	}
	if last, measured := r.measured.Swap(client.ObjectKeyFromObject(s.scheduled), edge.Unix()); !measured || last != edge.Unix() {
		transitionLag.Observe(now.Sub(edge.Time).Seconds())
	}
}

// fleet counts ScheduledMachines, and their Machines that leave late. All replicas and shards cache the same objects;
// only the leader that serves an object counts it.
type fleet struct {
	reader      client.Reader
	clock       clock.PassiveClock
	watchFilter string
	// elected is closed once this replica is the leader.
	elected <-chan struct{}
}

// Describe implements prometheus.Collector.
func (fleet) Describe(ch chan<- *prometheus.Desc) {
	ch <- machines
	ch <- machineConditions
	ch <- departuresLate
}

// Collect implements prometheus.Collector. It reports nothing before this manager leads.
func (f fleet) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-f.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all, leaving := &v1alpha1.ScheduledMachineList{}, &clusterv1.MachineList{}
	err := f.reader.List(ctx, all, client.UnsafeDisableDeepCopy) // The results are the cache's.
	list := slices.DeleteFunc(all.Items, func(sm v1alpha1.ScheduledMachine) bool { return !workload.MatchesFilter(f.watchFilter, &sm) })
	if len(list) > 0 {
		err = errors.Join(err, f.reader.List(ctx, leaving, client.UnsafeDisableDeepCopy))
	}
	if err != nil {
		ch <- prometheus.NewInvalidMetric(machines, err)
		return
	}
	type key struct {
		of     *prometheus.Desc
		labels [5]string
	}
	counts, labels := map[key]float64{}, map[*prometheus.Desc]int{machines: 3, machineConditions: 5, departuresLate: 2}
	now, deleted := f.clock.Now(), deletedMachines(leaving)
	for i := range list {
		sm := &list[i]
		phase := cmp.Or(sm.Status.Phase, v1alpha1.PhasePending)
		counts[key{machines, [5]string{string(phase), sm.Namespace, sm.Spec.ClusterName}}]++
		for _, c := range sm.Status.Conditions {
			counts[key{machineConditions, [5]string{c.Type, string(c.Status), c.Reason, sm.Namespace, sm.Spec.ClusterName}}]++
		}
		late := key{departuresLate, [5]string{sm.Namespace, sm.Spec.ClusterName}}
		counts[late] += 0 // Every Cluster has a series.
		if m := deleted[client.ObjectKeyFromObject(sm)]; m != nil && isLate(m, sm, now) {
			counts[late]++
		}
	}
	for k, n := range counts {
		ch <- prometheus.MustNewConstMetric(k.of, prometheus.GaugeValue, n, k.labels[:labels[k.of]]...)
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

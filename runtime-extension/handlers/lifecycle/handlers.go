// SPDX-License-Identifier: Apache-2.0

// Package lifecycle answers one question: may Cluster API go on with a Cluster now? It
// is asked before a Cluster of a topology is deleted or upgraded. Handlers read a cache
// and write nothing; whatever they wait for has a beginning that is written down in the
// API, and an end that is counted from there, so that no restart makes a wait longer.
package lifecycle

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// HoldUpgradesSetting is the setting of the ExtensionConfig that turns the holding of
// upgrades off with the value "false".
const HoldUpgradesSetting = "holdUpgradesDuringEmergency"

// retryAfterSeconds is when Cluster API asks again, and not before.
const retryAfterSeconds = 5

// Handlers answer the hooks.
type Handlers struct {
	// Reader is a cache with Machines and ScheduledMachines.
	Reader client.Reader
	// Clock tells the time.
	Clock clock.PassiveClock
	// ClusterIndex is the index of ScheduledMachines by the name of their Cluster.
	ClusterIndex string
}

// BeforeClusterDelete holds a Cluster while machines of ours are in it.
func (h *Handlers) BeforeClusterDelete(ctx context.Context, req *runtimehooksv1.BeforeClusterDeleteRequest, res *runtimehooksv1.BeforeClusterDeleteResponse) {
	var deleted time.Time
	if req.Cluster.DeletionTimestamp != nil {
		deleted = req.Cluster.DeletionTimestamp.Time
	}
	h.answer(ctx, res, &req.Cluster, func(now time.Time, machines []machine) string { return beforeDelete(now, deleted, machines) })
}

// BeforeClusterUpgrade holds the upgrade of a control plane in an emergency.
func (h *Handlers) BeforeClusterUpgrade(ctx context.Context, req *runtimehooksv1.BeforeClusterUpgradeRequest, res *runtimehooksv1.BeforeClusterUpgradeResponse) {
	h.upgrade(ctx, req, res, &req.Cluster)
}

// BeforeWorkersUpgrade holds the upgrade of workers in an emergency.
func (h *Handlers) BeforeWorkersUpgrade(ctx context.Context, req *runtimehooksv1.BeforeWorkersUpgradeRequest, res *runtimehooksv1.BeforeWorkersUpgradeResponse) {
	h.upgrade(ctx, req, res, &req.Cluster)
}

func (h *Handlers) upgrade(ctx context.Context, req runtimehooksv1.RequestObject, res runtimehooksv1.RetryResponseObject, cluster client.Object) {
	if hold, err := strconv.ParseBool(req.GetSettings()[HoldUpgradesSetting]); err == nil && !hold {
		res.SetStatus(runtimehooksv1.ResponseStatusSuccess)
		return
	}
	h.answer(ctx, res, cluster, beforeUpgrade)
}

// AfterControlPlaneInitialized tells who can join from now on. There is nothing to
// do: our connection to the Cluster is made as soon as it can be.
func (h *Handlers) AfterControlPlaneInitialized(ctx context.Context, req *runtimehooksv1.AfterControlPlaneInitializedRequest, res *runtimehooksv1.AfterControlPlaneInitializedResponse) {
	res.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	scheduled, err := h.scheduled(ctx, &req.Cluster)
	if err == nil && len(scheduled) > 0 {
		ctrl.LoggerFrom(ctx).Info("Control plane is initialized, machines can join", "Cluster", klog.KObj(&req.Cluster), "machines", len(scheduled))
	}
}

// answer lets Cluster API go on, or has it ask again.
func (h *Handlers) answer(ctx context.Context, res runtimehooksv1.RetryResponseObject, cluster client.Object, decide func(time.Time, []machine) string) {
	now := h.Clock.Now()
	machines, err := h.machines(ctx, cluster, now)
	if err != nil {
		res.SetStatus(runtimehooksv1.ResponseStatusFailure)
		res.SetMessage(err.Error())
		return
	}
	res.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if waits := decide(now, machines); waits != "" {
		res.SetMessage(waits)
		res.SetRetryAfterSeconds(retryAfterSeconds)
	}
}

// machines are those of ScheduledMachines in a Cluster.
func (h *Handlers) machines(ctx context.Context, cluster client.Object, now time.Time) ([]machine, error) {
	scheduled, err := h.scheduled(ctx, cluster)
	if err != nil {
		return nil, err
	}
	list := &clusterv1.MachineList{}
	if err := h.Reader.List(ctx, list, client.InNamespace(cluster.GetNamespace()),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	var machines []machine
	for i := range list.Items {
		if name := children.ParentOf(&list.Items[i]); name != "" {
			machines = append(machines, machineOf(name, &list.Items[i], scheduled[name], now))
		}
	}
	return machines, nil
}

// scheduled are the ScheduledMachines of a Cluster by their names.
func (h *Handlers) scheduled(ctx context.Context, cluster client.Object) (map[string]*v1alpha1.ScheduledMachine, error) {
	list := &v1alpha1.ScheduledMachineList{}
	if err := h.Reader.List(ctx, list, client.InNamespace(cluster.GetNamespace()),
		client.MatchingFields{h.ClusterIndex: cluster.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	found := make(map[string]*v1alpha1.ScheduledMachine, len(list.Items))
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found, nil
}

// machineOf is the border between Kubernetes and the decisions. sm is nil where the
// Machine has outlived its ScheduledMachine.
func machineOf(name string, m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) machine {
	f := machine{Name: name}
	if sm == nil {
		return f
	}
	f.Grace = children.GraceOf(sm)
	if sm.Spec.KillSwitch || sm.BeingReclaimed() {
		f.Emergency = children.LeavingSince(m, sm, now)
	}
	if sm.BeingReclaimed() {
		// The owner may have come in the middle of a departure.
		for _, t := range sm.ReclaimTimes() {
			if t.After(f.Emergency) {
				f.Emergency = t
			}
		}
	}
	return f
}

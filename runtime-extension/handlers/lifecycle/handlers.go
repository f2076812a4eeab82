// SPDX-License-Identifier: Apache-2.0

// Package lifecycle implements the hooks that Cluster API calls before it deletes or upgrades a Cluster with a
// topology. A response either lets Cluster API proceed or requests a retry. Handlers read a cache and write nothing.
// Each wait starts at a time that is recorded in the API, so a restart of the manager does not prolong it.
package lifecycle

import (
	"context"
	"fmt"
	"slices"
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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// HoldUpgradesSetting is the setting of the ExtensionConfig that disables waits of upgrades with the value "false".
const HoldUpgradesSetting = "holdUpgradesDuringEmergency"

// retryAfterSeconds is the delay before Cluster API calls the hook again.
const retryAfterSeconds = 5

// Handlers implements the hooks. It is safe for concurrent use.
type Handlers struct {
	// Reader is a cache with Machines and ScheduledMachines.
	Reader client.Reader
	// Clock returns the current time.
	Clock clock.PassiveClock
}

// BeforeClusterDelete delays the deletion of a Cluster while it has machines of 5-Spot.
func (h *Handlers) BeforeClusterDelete(ctx context.Context, req *runtimehooksv1.BeforeClusterDeleteRequest, res *runtimehooksv1.BeforeClusterDeleteResponse) {
	var deleted time.Time
	if req.Cluster.DeletionTimestamp != nil {
		deleted = req.Cluster.DeletionTimestamp.Time
	}
	h.answer(ctx, res, &req.Cluster, func(now time.Time, machines []machine) string { return beforeDelete(now, deleted, machines) })
}

// BeforeClusterUpgrade delays the upgrade of a control plane during an emergency.
func (h *Handlers) BeforeClusterUpgrade(ctx context.Context, req *runtimehooksv1.BeforeClusterUpgradeRequest, res *runtimehooksv1.BeforeClusterUpgradeResponse) {
	h.upgrade(ctx, req, res, &req.Cluster)
}

// BeforeWorkersUpgrade delays the upgrade of workers during an emergency.
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

// AfterControlPlaneInitialized logs how many machines can join. It does nothing else, because 5-Spot connects to the
// Cluster by itself.
func (h *Handlers) AfterControlPlaneInitialized(ctx context.Context, req *runtimehooksv1.AfterControlPlaneInitializedRequest, res *runtimehooksv1.AfterControlPlaneInitializedResponse) {
	res.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	scheduled, err := h.scheduled(ctx, &req.Cluster)
	if err == nil && len(scheduled) > 0 {
		ctrl.LoggerFrom(ctx).Info("Control plane is initialized, machines can join", "Cluster", klog.KObj(&req.Cluster), "machines", len(scheduled))
	}
}

// answer writes the response: success, success with a retry, or failure.
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

// machines returns the Machines of ScheduledMachines in a Cluster.
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

// scheduled returns the ScheduledMachines of a Cluster by name.
func (h *Handlers) scheduled(ctx context.Context, cluster client.Object) (map[string]*v1alpha1.ScheduledMachine, error) {
	list := &v1alpha1.ScheduledMachineList{}
	if err := h.Reader.List(ctx, list, client.InNamespace(cluster.GetNamespace()),
		client.MatchingFields{wake.ClusterIndex: cluster.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	found := make(map[string]*v1alpha1.ScheduledMachine, len(list.Items))
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found, nil
}

// machineOf converts a Machine for the decisions. sm is nil if the ScheduledMachine does not exist any more.
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
		// The owner may have requested the machine during a departure.
		f.Emergency = slices.MaxFunc(append(sm.ReclaimTimes(), f.Emergency), time.Time.Compare)
	}
	return f
}

// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// Finalizer keeps a PlaneMachine until its backend has removed the machine.
const Finalizer = "infrastructure.cluster.x-k8s.io/planemachine"

// A Host is a machine of a Backend.
type Host struct {
	// Cluster is the Cluster that the Host joins.
	Cluster client.ObjectKey
	// ID is unique among all Hosts of a management cluster.
	ID string
	// NodeName and ProviderID identify its Node.
	NodeName, ProviderID string
	// MachineID may be ignored by a backend with real machine IDs.
	MachineID string
	// Address may be ignored by a backend with real addresses. If it is empty, the backend chooses.
	Address string
	// Version is the version of Kubernetes in the Machine.
	Version string
	// LeaseSeconds is the lease duration of the Node, if the backend can set it.
	LeaseSeconds int32
	// Silent hosts are disconnected from the network.
	Silent bool
	// Cgroups is the version that the Node sees, if the backend can set it; empty means any.
	Cgroups infrav1.CgroupVersion
}

// A Backend turns Hosts into Nodes. Ensure and Remove are idempotent, and may run for many Hosts in parallel.
type Backend interface {
	// Ensure creates the Host and returns its address. After ErrNotYet the caller retries.
	Ensure(ctx context.Context, h Host) (address string, err error)
	// Remove removes the Host. It deletes the Node only if deleteNode. After ErrNotYet the caller retries.
	Remove(ctx context.Context, h Host, deleteNode bool) error
	// Forget drops the Host, which another management cluster now manages.
	Forget(h Host)
}

// ErrNotYet reports an operation in progress.
var ErrNotYet = errors.New("in progress")

// machineReconciler creates and removes the Hosts of PlaneMachines.
type machineReconciler struct {
	client   client.Client
	clock    clock.PassiveClock
	backends map[infrav1.Backend]Backend

	// made has the Host of each PlaneMachine, for Forget after a move.
	made sync.Map
}

// outcome is the result of a reconcile, for the Ready condition.
type outcome struct {
	ready           bool
	reason, message string
	again           time.Duration
}

// Reconcile implements reconcile.Reconciler.
func (r *machineReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pm := &infrav1.PlaneMachine{}
	if err := r.client.Get(ctx, req.NamespacedName, pm); err != nil {
		if forget, made := r.made.LoadAndDelete(req.NamespacedName); made && apierrors.IsNotFound(err) {
			forget.(func())() //nolint:forcetypeassert // nothing else is stored
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	machine, err := util.GetOwnerMachine(ctx, r.client, pm.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading owner: %w", err)
	}
	before := pm.DeepCopy()
	var out outcome
	if pm.DeletionTimestamp.IsZero() {
		out, err = r.reconcile(ctx, pm, machine)
	} else {
		out, err = r.reconcileDelete(ctx, pm)
	}
	if err != nil {
		out = outcome{reason: "BackendError", message: err.Error()}
	}
	setReady(&pm.Status.Conditions, pm.Generation, out.ready, out.reason, out.message)
	if !equality.Semantic.DeepEqual(before.Status, pm.Status) {
		err = errors.Join(err, client.IgnoreNotFound(r.client.Status().Patch(ctx, pm, client.MergeFrom(before))))
	}
	return ctrl.Result{RequeueAfter: out.again}, err
}

func (r *machineReconciler) reconcile(ctx context.Context, pm *infrav1.PlaneMachine, machine *clusterv1.Machine) (outcome, error) {
	if machine == nil {
		return outcome{reason: "WaitingForMachine"}, nil
	}
	cluster, err := util.GetClusterByName(ctx, r.client, pm.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return outcome{}, fmt.Errorf("reading Cluster: %w", err)
	}
	if annotations.IsPaused(cluster, pm) {
		return outcome{ready: pm.Status.NodeName != "", reason: "Paused", again: time.Second}, nil
	}
	if machine.Spec.Bootstrap.DataSecretName == nil {
		return outcome{reason: "WaitingForBootstrapData"}, nil
	}
	if out, stopped := provisionFault(r.clock.Now(), pm); stopped {
		return out, nil
	}
	host, err := r.host(ctx, pm, machine, cluster)
	if err != nil {
		return outcome{}, err
	}
	if err := r.remember(ctx, pm, host); err != nil {
		return outcome{}, client.IgnoreNotFound(err)
	}
	r.made.Store(client.ObjectKeyFromObject(pm), func() { r.backend(pm).Forget(host) })
	pm.Status.NodeName = host.NodeName
	address, err := r.backend(pm).Ensure(ctx, host)
	if errors.Is(err, ErrNotYet) {
		return outcome{reason: "Provisioning", message: err.Error(), again: time.Second}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	pm.Status.Initialization.Provisioned = new(true)
	pm.Status.Addresses = []infrav1.MachineAddress{{Type: "InternalIP", Address: address}, {Type: "Hostname", Address: host.NodeName}}
	return outcome{ready: true, reason: "Provisioned"}, nil
}

// remember stores the data for the removal of a Host before it is created.
func (r *machineReconciler) remember(ctx context.Context, pm *infrav1.PlaneMachine, host Host) error {
	before := pm.DeepCopy()
	controllerutil.AddFinalizer(pm, Finalizer)
	pm.Spec.ProviderID, pm.Spec.NodeName = host.ProviderID, host.NodeName
	if pm.Labels == nil {
		pm.Labels = map[string]string{}
	}
	pm.Labels[clusterv1.ClusterNameLabel] = host.Cluster.Name
	if equality.Semantic.DeepEqual(before, pm) {
		return nil
	}
	status := pm.Status
	err := r.client.Patch(ctx, pm, client.MergeFrom(before))
	pm.Status = status // the patch response has overwritten it
	return err
}

func (r *machineReconciler) reconcileDelete(ctx context.Context, pm *infrav1.PlaneMachine) (outcome, error) {
	if !controllerutil.ContainsFinalizer(pm, Finalizer) {
		return outcome{reason: "Deleted"}, nil
	}
	key := client.ObjectKey{Namespace: pm.Namespace, Name: pm.Labels[clusterv1.ClusterNameLabel]}
	cluster := &clusterv1.Cluster{}
	if err := r.client.Get(ctx, key, cluster); client.IgnoreNotFound(err) != nil {
		return outcome{}, fmt.Errorf("reading Cluster: %w", err)
	}
	if annotations.IsPaused(cluster, pm) {
		return outcome{reason: "Paused", again: time.Second}, nil
	}
	f := pm.Spec.Faults
	if f.Deletion != "" {
		return outcome{reason: "DeletionFault", message: "asked to " + string(f.Deletion)}, nil
	}
	if wait := remaining(r.clock.Now(), *pm.DeletionTimestamp, f.DeletionSeconds); wait > 0 {
		return outcome{reason: "Deleting", again: wait}, nil
	}
	host := Host{
		Cluster: key, ID: id(pm),
		NodeName: pm.Spec.NodeName, ProviderID: pm.Spec.ProviderID,
	}
	err := r.backend(pm).Remove(ctx, host, pm.Spec.NodeRemoval == infrav1.RemovedByProvider)
	if errors.Is(err, ErrNotYet) {
		return outcome{reason: "Deleting", message: err.Error(), again: 200 * time.Millisecond}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	before := pm.DeepCopy()
	controllerutil.RemoveFinalizer(pm, Finalizer)
	return outcome{reason: "Deleted"}, client.IgnoreNotFound(r.client.Patch(ctx, pm, client.MergeFrom(before)))
}

// provisionFault reports whether an injected fault blocks the Machine.
func provisionFault(now time.Time, pm *infrav1.PlaneMachine) (outcome, bool) {
	if pm.Status.NodeName != "" {
		return outcome{}, false
	}
	f := pm.Spec.Faults
	if wait := remaining(now, pm.CreationTimestamp, f.ProvisionSeconds); wait > 0 {
		return outcome{reason: "Provisioning", again: wait}, true
	}
	switch f.Provision {
	case infrav1.Fail:
		return outcome{reason: "ProvisioningFailed", message: "asked to fail"}, true
	case infrav1.Hang:
		return outcome{reason: "Provisioning"}, true
	default:
		return outcome{}, false
	}
}

func (r *machineReconciler) host(ctx context.Context, pm *infrav1.PlaneMachine, machine *clusterv1.Machine, cluster *clusterv1.Cluster) (Host, error) {
	h := Host{
		Cluster: client.ObjectKeyFromObject(cluster), ID: id(pm),
		NodeName: pm.Spec.NodeName, ProviderID: fmt.Sprintf("plane://%s/%s", pm.Namespace, pm.Name),
		MachineID: pm.Spec.MachineID, Address: pm.Spec.Address, Version: machine.Spec.Version, LeaseSeconds: 40, Silent: pm.Spec.Faults.Heartbeat != "",
		Cgroups: pm.Spec.Cgroups,
	}
	if h.NodeName == "" {
		h.NodeName = machine.Name
	}
	infra := &infrav1.PlaneCluster{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.InfrastructureRef.Name}
	if err := r.client.Get(ctx, key, infra); err != nil {
		return Host{}, fmt.Errorf("reading PlaneCluster: %w", err)
	}
	if s := infra.Spec.NodeLeaseSeconds; s > 0 {
		h.LeaseSeconds = s
	}
	return h, nil
}

func (r *machineReconciler) backend(pm *infrav1.PlaneMachine) Backend {
	if b, ok := r.backends[pm.Spec.Backend]; ok {
		return b
	}
	return r.backends[infrav1.Simulated]
}

func id(pm *infrav1.PlaneMachine) string { return pm.Namespace + "/" + pm.Name }

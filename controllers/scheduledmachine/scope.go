// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// scope holds what one reconcile reads. observe fills it.
type scope struct {
	// scheduled is the object being reconciled. before is a copy from before the changes to its status.
	scheduled, before *v1alpha1.ScheduledMachine

	// cluster is nil if there is no Cluster of that name.
	cluster *clusterv1.Cluster
	// paused reports that the Cluster or the object is paused.
	paused bool

	// children are the existing children. act updates them.
	children children.Set

	// acceptedHost is the accepted data about the host of the Machine. See children.Host.
	acceptedHost children.Host

	// nodeState is the state of the Node of a machine that is gone. node is the Node of its name, nil if unknown.
	// nodeLater requests a retry.
	nodeState lifecycle.Presence
	node      *corev1.Node
	nodeLater bool

	// invalid has the validation errors of the spec.
	invalid field.ErrorList

	// host has the other ScheduledMachines of the host. clone is the infrastructure machine that the template produces.
	host  host
	clone clone

	// waitsFor are the deletion hooks of others that a removal waits for.
	waitsFor []string

	// stalled is why an owner's reclaim does not proceed, empty if it is not known to stall.
	stalled string

	// suppressed reports that all writes are suppressed, and phases do not change.
	suppressed bool
	// clockSuspect reports that the clock may be wrong.
	clockSuspect bool

	// pending is what act has not finished. reportAt is when to report although it is not finished, zero if never.
	pending  pending
	reportAt time.Time

	// filter is the watch label that the Cluster needs for a connection, empty if it needs none.
	filter string

	// connected reports that the workload cluster is connected. probes are the health probes of the connection.
	connected bool
	probes    clustercache.HealthCheckingState
}

// pending is the work that remains after act. While there is some, no status is written: at the edge of a shared window,
// the first writes of all machines go before the second writes of some.
type pending int

const (
	// workDone: no work remains.
	workDone pending = iota
	// workFollows: the next reconcile continues the action, when the cache shows the created object.
	workFollows
	// workWaits: an event of the written object, or scope.reportAt, triggers the next reconcile.
	workWaits
)

func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	s := &scope{
		scheduled: sm, invalid: validation.ScheduledMachine(sm), filter: r.watchFilter, suppressed: r.Actuate.Suppresses(),
		stalled: r.ReclaimTracker.StuckReason(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)}),
	}

	var err error
	if s.cluster, s.paused, err = workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName); err != nil {
		return nil, err
	}
	key := workload.ClusterKey(sm)
	_, err = r.ClusterCache.GetReader(ctx, key)
	if workload.IgnoreNotConnected(err) != nil {
		return nil, err
	}
	s.connected = err == nil
	s.probes = r.ClusterCache.GetHealthCheckingState(ctx, key)

	if s.children, err = r.Children.Read(ctx, sm, s.needsLiveReads()); err != nil {
		return nil, err
	}
	if s.acceptedHost, err = r.Children.Host(ctx, sm, s.children.Machine); err != nil {
		return nil, err
	}
	s.waitsFor = s.children.WaitsFor(r.Hooks)
	if err := r.observeHost(ctx, s); err != nil {
		return nil, err
	}
	r.observeNode(ctx, s)
	return s, r.watchChildren(s)
}

// needsLiveReads reports whether a child that is missing in the cache is read live. This prevents leftovers when the
// object itself is deleted, and the replacement of a running machine because of a stale cache. Creation checks live by
// itself.
func (s *scope) needsLiveReads() bool {
	st := &s.scheduled.Status
	return !s.scheduled.DeletionTimestamp.IsZero() || st.MachineRef != nil || st.InfrastructureRef != nil || st.BootstrapRef != nil
}

// watchChildren starts watches on the kinds of the children. If a kind cannot be listed now, its watch triggers a
// reconcile when it can.
func (r *Reconciler) watchChildren(s *scope) error {
	var errs []error
	for _, kind := range s.children.Kinds {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind)
		errs = append(errs, r.Watch(obj))
	}
	return errors.Join(errs...)
}

// facts converts the observed objects to the facts of the decision, which has no Kubernetes types.
func (s *scope) facts(now time.Time) lifecycle.Facts {
	sm, schedule := s.scheduled, machineschedule.Resolve(s.scheduled, now)
	f := lifecycle.Facts{
		Now:            now,
		Phase:          lifecycle.Phase(sm.Status.Phase),
		Deleting:       !sm.DeletionTimestamp.IsZero(),
		KillSwitch:     sm.Spec.KillSwitch,
		Reclaim:        sm.BeingReclaimed(),
		Enabled:        schedule.Enabled,
		Readable:       schedule.Err == nil,
		Wanted:         schedule.Active,
		Change:         schedule.Change,
		Infrastructure: s.children.InfrastructureState(),
		Bootstrap:      s.children.BootstrapState(),
		Machine:        s.children.MachineState(),
		Expedited:      s.children.Removed(children.HonourHooks),
		Claimed:        s.host.Standing >= hosts.Second,
		Node:           s.nodeState,
		ClockSuspect:   s.clockSuspect,
	}
	if s.cluster != nil {
		f.Cluster = children.PresenceOf(s.cluster)
	}
	if m := s.children.Machine; m != nil {
		// Cluster API writes conditions before the other status fields.
		f.MachineReady = conditions.IsTrue(m, clusterv1.ReadyCondition) && s.acceptedHost.Node != ""
		f.MachineFailed = conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) && m.DeletionTimestamp.IsZero()
		f.Interrupted = children.Interrupted(m)
		// The planner deletes the Machines that it admits. While writes are suppressed, the report names what would happen.
		f.Exempt = s.exempt() || s.suppressed
		f.Settling, f.SettledBy = children.Settling(m, sm, now)
		f.Deadline = children.DeadlineOf(m, sm, now)
	}
	return f
}

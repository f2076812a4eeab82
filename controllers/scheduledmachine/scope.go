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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// scope holds what one reconcile reads. It is filled by observe.
type scope struct {
	// scheduled is the object being reconciled, and before what it was when its
	// status began to be rewritten.
	scheduled, before *v1alpha1.ScheduledMachine

	// cluster is nil while there is no Cluster of that name.
	cluster *clusterv1.Cluster
	// paused says that it is, or the object itself.
	paused bool

	// children are what exists. act keeps them up to date.
	children children.Set

	// believed is what is believed of the host of the Machine.
	believed children.Host

	// nodeState is what is known of the Node of a machine that is gone, and node the Node of
	// its name, nil if none is known. nodeLater says that it is to be tried again.
	nodeState lifecycle.Presence
	node      *corev1.Node
	nodeLater bool

	// schedule is the zero value, which is never active, if scheduleErr is set.
	schedule    schedule.Schedule
	scheduleErr error

	// invalid is everything in the spec that can never be carried out.
	invalid field.ErrorList

	// host is who else names the host, and clone what a template would make there.
	host  host
	clone clone

	// waitsFor are the deletion hooks of others that a removal waits for.
	waitsFor []string

	// stalled says why an owner who asked does not get the machine, empty if nothing is
	// known to stop it.
	stalled string

	// frozen says that nothing is carried out, and phases stay as they are.
	frozen bool
	// starting says that a departure would start that may have to wait, and verdict whether
	// it does.
	starting bool
	verdict  roster.Verdict

	// pending is what act left for later.
	pending pending

	// filter is the watch label without which the Cluster is never connected, empty where
	// it does not need one.
	filter string

	// connected says that the workload cluster can be seen, and tried that a
	// connection was tried. Before that it is unknown. probes are its health probes.
	connected, tried bool
	probes           clustercache.HealthCheckingState
}

// pending is what follows an action that has only begun. Nothing is reported then:
// at the edge of a shared window everybody's first write comes before anybody's
// second.
type pending int

const (
	// nothing follows.
	nothing pending = iota
	// follows: the rest of the action is for the next look, once the cache has what was made.
	follows
	// waits: what was done wakes us.
	waits
)

func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	s := &scope{
		scheduled: sm, invalid: validation.ScheduledMachine(sm), filter: r.watchFilter, frozen: r.Actuate.Suppresses(),
		stalled: r.Rush.Stalled(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)}),
	}
	s.schedule, s.scheduleErr = schedule.Parse(validation.ScheduleSpec(&sm.Spec.Schedule))

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
	s.tried = s.connected || !s.probes.LastProbeTime.IsZero()

	if s.children, err = r.Children.Read(ctx, sm, s.mustBeSure()); err != nil {
		return nil, err
	}
	if s.believed, err = r.Children.Host(ctx, sm, s.children.Machine); err != nil {
		return nil, err
	}
	s.waitsFor = s.children.WaitsFor(r.Hooks)
	if err := r.observeHost(ctx, s); err != nil {
		return nil, err
	}
	r.observeNode(ctx, s)
	return s, r.watchChildren(s)
}

// mustBeSure reports whether a child that the cache does not have is looked up
// live: before the object itself goes, so that nothing is left behind, and while a
// Machine is there, so that it is not replaced because of a cache that is late.
// What is about to be made is looked up then.
func (s *scope) mustBeSure() bool {
	st := &s.scheduled.Status
	return !s.scheduled.DeletionTimestamp.IsZero() || st.MachineRef != nil || st.InfrastructureRef != nil || st.BootstrapRef != nil
}

// watchChildren watches the kinds of which children were looked for. One whose objects
// cannot be listed now wakes us when they can.
func (r *Reconciler) watchChildren(s *scope) error {
	var errs []error
	for _, kind := range s.children.Kinds {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind)
		errs = append(errs, r.Watcher.Watch(obj))
	}
	return errors.Join(errs...)
}

// answer is the schedule's, and never a yes while the schedule is disabled.
func (s *scope) answer(now time.Time) (active bool, change time.Time) {
	if !s.scheduled.ScheduleEnabled() || s.scheduleErr != nil {
		return false, time.Time{}
	}
	return s.schedule.At(now)
}

// facts is the border between Kubernetes and the decision.
func (s *scope) facts(now time.Time) lifecycle.Facts {
	sm := s.scheduled
	f := lifecycle.Facts{
		Now:            now,
		Phase:          lifecycle.Phase(sm.Status.Phase),
		Deleting:       !sm.DeletionTimestamp.IsZero(),
		KillSwitch:     sm.Spec.KillSwitch,
		Reclaim:        sm.BeingReclaimed(),
		Enabled:        sm.ScheduleEnabled(),
		Readable:       s.scheduleErr == nil,
		Infrastructure: s.children.InfrastructureState(),
		Bootstrap:      s.children.BootstrapState(),
		Machine:        s.children.MachineState(),
		Expedited:      s.children.Expedited(),
		Claimed:        s.host.second(),
		Node:           s.nodeState,
	}
	f.Wanted, f.Change = s.answer(now)
	if s.cluster != nil {
		f.Cluster = lifecycle.ClusterPresent
		if !s.cluster.DeletionTimestamp.IsZero() {
			f.Cluster = lifecycle.ClusterLeaving
		}
	}
	if m := s.children.Machine; m != nil {
		// Cluster API patches conditions before the rest of the status.
		f.MachineReady = conditions.IsTrue(m, clusterv1.ReadyCondition) && s.believed.Node != ""
		f.MachineFailed = conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) && m.DeletionTimestamp.IsZero()
		f.Interrupted = children.Interrupted(m)
		f.Settling, f.SettledBy = children.Settling(m, sm, now)
		f.Deadline = children.DeadlineOf(m, sm, now)
	}
	return f
}

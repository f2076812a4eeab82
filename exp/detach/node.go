// SPDX-License-Identifier: Apache-2.0

// Package detach removes a Node from its load balancers before its pods are evicted, and puts it back if it stays.
// NodeReconciler decides which Nodes must be detached and writes a NodeAttachment for each. BalancerReconciler drains
// and restores the memberships of these Nodes, one load balancer at a time, and reports its progress in the
// NodeAttachment's status. Step holds the drain of a leaving Machine until all LoadBalancers of its Cluster have
// drained the Node, or their deadlines have passed.
//
// Package plan makes the decisions. Each membership is on record in the NodeAttachment before it is drained, so that a
// restarted manager and clusterctl move can restore it.
package detach

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// NodeReconciler decides which Nodes must be detached from their load balancers. It reads Machines, Nodes,
// LoadBalancers and the pods of DaemonSets that these name. It writes NodeAttachments, and the cordon and annotations
// of Nodes; it deletes the pods of rolls.
type NodeReconciler struct {
	// Clock returns the current time.
	Clock clock.PassiveClock
	// Reader reads Clusters, Machines, LoadBalancers and NodeAttachments from the manager's cache. Live reads from the
	// API server.
	Reader, Live client.Reader
	// Actuate writes NodeAttachments and Nodes.
	Actuate *actuate.Actuator
	// ClusterCache reads the Nodes of workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// Taints are the keys of taints that detach a Node, in addition to cluster-autoscaler's. A key that ends with *
	// matches all keys with that prefix.
	Taints []string
	// WatchFilter is the value of Cluster API's watch label. Empty means all objects.
	WatchFilter string
	// Pods stops the pods of Nodes that leave, or are cordoned or tainted, without 5-Spot's pre-terminate hook.
	Pods PodStopper

	nodes    workload.Watch
	podCache remoteCache
	fresh    wake.Freshness
}

// PodStopper is the interface of podorder.Step.
type PodStopper interface {
	StopWithoutHook(ctx context.Context, request types.NamespacedName, d leaving.Departing, leaves func(*corev1.Node) bool, now time.Time) time.Duration
	ForgetWithoutHook(request types.NamespacedName)
	Woken() source.Source
}

var _ PodStopper = &podorder.Step{}

// scope holds the objects that one reconcile reads.
type scope struct {
	cluster *clusterv1.Cluster
	name    string
	// known means that the Node could be read. It is false if several Machines claim the Node. node is nil if the Node
	// does not exist.
	known bool
	node  *corev1.Node
	// machine is nil if the Node has none.
	machine *clusterv1.Machine
	// providerID and addresses identify the Node to load balancers.
	providerID string
	addresses  []string
	// attachment is nil if there is none.
	attachment *expv1.NodeAttachment
	// balancers are the LoadBalancers of the Cluster. sets are the DaemonSets that these name.
	balancers []expv1.LoadBalancer
	sets      []daemonSet
	// daemonSetReader reads the DaemonSets and their pods. It is nil until its cache is synced. daemonSetErr is the
	// error, if any. daemonSets is their state on the Node.
	daemonSetReader client.Reader
	daemonSetErr    error
	daemonSets      []plan.DaemonSet
}

// requestFor returns the request for a Node of a Cluster. An empty node stands for the Cluster itself, whose rolls are
// reconciled.
func requestFor(cluster client.ObjectKey, node string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name + "/" + node}}
}

// Reconcile reconciles one Node, or the rolls of one Cluster.
func (r *NodeReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	clusterName, node, _ := strings.Cut(req.Name, "/")
	key := client.ObjectKey{Namespace: req.Namespace, Name: clusterName}
	s, err := r.observe(ctx, key, node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		r.podCache.Stop(key)
		return ctrl.Result{}, nil
	}
	now, before := r.Clock.Now(), versionOf(s.attachment)
	if wait := r.fresh.Hold(req, before, now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	again, err := r.reconcile(ctx, s)
	r.fresh.Wrote(req, before, versionOf(s.attachment))
	if err == nil {
		err = s.daemonSetErr // All work that does not need the unread data is done.
	}
	// A new connection to the workload cluster enqueues the Node.
	result, err := r.fresh.ResultOf(req, now, client.IgnoreNotFound(workload.IgnoreNotConnected(err)))
	if err == nil && result.RequeueAfter == 0 {
		result.RequeueAfter = again
	}
	return result, err
}

// reconcile runs the rolls of the Cluster, or acts on one Node. again is the delay until the next deadline, zero if
// none is pending.
func (r *NodeReconciler) reconcile(ctx context.Context, s *scope) (again time.Duration, err error) {
	if s.name == "" {
		return r.roll(ctx, s)
	}
	if err := r.act(ctx, s, r.decide(s)); err != nil {
		return 0, err
	}
	again, err = r.deletePods(ctx, s)
	if wait := r.stopPods(ctx, s); again == 0 || wait > 0 && wait < again {
		again = wait
	}
	return again, err
}

// stopPods stops the pods of a Node that leaves, or is cordoned or tainted, in order. It does nothing if the
// pre-terminate hook of 5-Spot holds the Machine. It waits until the Node is detached, or the deadlines of its load
// balancers have passed. It returns the delay until the next call, zero if there is none.
func (r *NodeReconciler) stopPods(ctx context.Context, s *scope) time.Duration {
	now, request := r.Clock.Now(), requestFor(client.ObjectKeyFromObject(s.cluster), s.name).NamespacedName
	leaves := func(node *corev1.Node) bool {
		n := nodeFacts(node)
		n.Machine = machineFacts(s.machine, now)
		held := n.Machine == plan.Leaves && metav1.HasAnnotation(s.machine.ObjectMeta, v1alpha1.PreTerminateHookAnnotation)
		return n.Ready && !held && n.StopsPods(r.Taints)
	}
	if s.node == nil || !leaves(s.node) {
		r.Pods.ForgetWithoutHook(request)
		return 0
	}
	began := now
	if s.attachment != nil {
		began = s.attachment.Spec.TriggerTime.Time
	}
	if v := waitAll(notDeleting(s.balancers), s.attachment, leaving.Departing{Began: began}, began, ofControlPlane(s.node), now); v.Holds {
		return max(v.Again.Sub(now), time.Millisecond)
	}
	d := leaving.Departing{Machine: s.machine, Node: s.node.Name}
	if d.Machine == nil {
		d.Machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.cluster.Namespace}, Spec: clusterv1.MachineSpec{ClusterName: s.cluster.Name}}
	}
	return r.Pods.StopWithoutHook(ctx, request, d, leaves, now)
}

func (r *NodeReconciler) decide(s *scope) plan.Decision {
	return plan.Decide(s.facts(r.Clock.Now), s.record(), len(notDeleting(s.balancers)) > 0, r.Taints)
}

// versionOf returns the resourceVersion of a NodeAttachment, empty for nil.
func versionOf(a *expv1.NodeAttachment) string {
	if a == nil {
		return ""
	}
	return a.ResourceVersion
}

// observe reads all objects for one reconcile. It returns nil if the Cluster is paused, deleted, or belongs to another
// manager. For a Cluster that is gone or being deleted, it removes the finalizer of the NodeAttachment.
func (r *NodeReconciler) observe(ctx context.Context, key client.ObjectKey, node string) (*scope, error) {
	s := &scope{name: node}
	var paused bool
	var err error
	about := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace}}
	if s.cluster, paused, err = workload.ClusterOf(ctx, r.Reader, r.Live, about, key.Name); err != nil || paused {
		return nil, err
	}
	if s.attachment, err = attachment(ctx, r.Reader, key, node); err != nil {
		return nil, err
	}
	switch {
	case clusterGone(s.cluster) && s.attachment != nil:
		return nil, release(ctx, r.Actuate, s.attachment)
	case clusterGone(s.cluster), !workload.MatchesFilter(r.WatchFilter, s.cluster):
		return nil, nil
	}
	if s.balancers, err = balancersOf(ctx, r.Reader, key); err != nil {
		return nil, err
	}
	s.sets = servingDaemonSets(notDeleting(s.balancers))
	return s, r.observeNode(ctx, s, key)
}

// clusterGone reports whether the Cluster is being deleted or gone.
func clusterGone(cluster *clusterv1.Cluster) bool {
	return cluster == nil || !cluster.DeletionTimestamp.IsZero()
}

// release removes 5-Spot's finalizer.
func release(ctx context.Context, write *actuate.Actuator, obj client.Object) error {
	before, ok := obj.DeepCopyObject().(client.Object)
	if !ok || !controllerutil.RemoveFinalizer(obj, expv1.Finalizer) {
		return nil
	}
	return client.IgnoreNotFound(write.PatchLocked(ctx, obj, before))
}

// observeNode reads the Machine, and, if the workload cluster is connected, the Node.
func (r *NodeReconciler) observeNode(ctx context.Context, s *scope, key client.ObjectKey) error {
	s.daemonSetReader, s.daemonSetErr = r.podCache.Reader(ctx, key, namespacesOf(s.sets))
	err := r.nodes.Start(ctx, key)
	if s.name == "" { // The watch enqueues each Node.
		return workload.IgnoreNotConnected(err)
	}
	if err == nil {
		err = r.readNode(ctx, s, key)
	}
	if workload.IgnoreNotConnected(err) != nil {
		return err
	}
	if err := r.observeMachine(ctx, s, key); err != nil {
		return err
	}
	s.observePods(ctx)
	others, err := r.others(ctx, s)
	s.providerID, s.addresses = identity(s.node, s.machine, others)
	return err
}

func (r *NodeReconciler) readNode(ctx context.Context, s *scope, key client.ObjectKey) error {
	reader, err := r.ClusterCache.GetReader(ctx, key)
	if err != nil {
		return err
	}
	if s.node, err = workload.Node(ctx, reader, s.name); err != nil {
		return err
	}
	if s.node == nil && s.attachment != nil {
		if s.node, err = r.renamedNode(ctx, reader, key, s.attachment); err != nil {
			return err
		}
	}
	s.known = true
	return nil
}

// renamedNode returns the Node of a Machine that has an address of the recorded Node, which is gone. It is the same
// machine under another Node name. The addresses in a Node's own status do not count, because the machine's owner
// controls them.
func (r *NodeReconciler) renamedNode(ctx context.Context, reader client.Reader, key client.ObjectKey, a *expv1.NodeAttachment) (*corev1.Node, error) {
	machines, err := machinesWith(ctx, r.Reader, withAddress(a.Spec.Addresses), client.InNamespace(key.Namespace))
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		if m.Spec.ClusterName == key.Name {
			return workload.Node(ctx, reader, m.Status.NodeRef.Name)
		}
	}
	return nil, nil
}

func (r *NodeReconciler) observeMachine(ctx context.Context, s *scope, key client.ObjectKey) error {
	name := s.name
	if s.node != nil {
		name = s.node.Name
	}
	machines := &clusterv1.MachineList{}
	if err := r.Reader.List(ctx, machines, client.InNamespace(key.Namespace), client.MatchingFields{index.MachineNodeNameField: name}); err != nil {
		return fmt.Errorf("listing Machines: %w", err)
	}
	all := slices.DeleteFunc(machines.Items, func(m clusterv1.Machine) bool { return m.Spec.ClusterName != key.Name || !fits(&m, s.node) })
	if len(all) == 1 {
		s.machine = &all[0]
	}
	s.known = s.known && len(all) <= 1 // If several Machines claim the Node, none counts.
	return nil
}

// fits reports whether the Machine may belong to the Node. Two different provider IDs exclude it.
func fits(m *clusterv1.Machine, node *corev1.Node) bool {
	return node == nil || m.Spec.ProviderID == "" || node.Spec.ProviderID == "" || m.Spec.ProviderID == node.Spec.ProviderID
}

// record converts the NodeAttachment for package plan. A restore from backup may create a LoadBalancer later than a
// NodeAttachment. So memberships of a missing LoadBalancer are ignored only if the NodeAttachment is being deleted.
func (s *scope) record() (r plan.Record) {
	a := s.attachment
	if a == nil {
		return r
	}
	r = plan.Record{
		Exists: true, UID: string(a.Spec.NodeUID),
		ProviderID: a.Spec.ProviderID, Identity: identityOf(a.Spec.ProviderID, a.Spec.Addresses, a.Spec.ControlPlane),
		Trigger: plan.Trigger(a.Spec.Trigger), LoadBalancers: a.Spec.LoadBalancers, Replaces: replacements(a.Spec.DaemonSets),
	}
	for _, m := range a.Spec.Memberships {
		if !a.DeletionTimestamp.IsZero() && !slices.ContainsFunc(s.balancers, func(b expv1.LoadBalancer) bool { return b.Name == m.LoadBalancer }) {
			continue
		}
		if r.Memberships++; m.Persistent {
			r.Permanent++
		}
	}
	for _, lb := range notDeleting(s.balancers) {
		p := progressOf(a, lb.Name)
		concerned := mustDetachFrom(a, &lb) && !hasNoIdentity(&lb, &a.Spec)
		out := current(p, &lb, a) && p.Phase == expv1.PhaseDetached
		r.Unconfirmed = r.Unconfirmed || concerned && !out && a.DeletionTimestamp.IsZero()
	}
	return r
}

// hasNoIdentity reports whether a load balancer cannot match the Node, because the record has no address or provider ID
// that it could use.
func hasNoIdentity(lb *expv1.LoadBalancer, a *expv1.NodeAttachmentSpec) bool {
	return len(a.Addresses) == 0 && (lb.Spec.HAProxy != nil || a.ProviderID == "")
}

// act changes the Node first, and then writes or deletes its NodeAttachment. A failed change of the Node prevents the
// write if the Node returns, or if the error is a conflict. The next reconcile decides again. The record changes last:
// after a crash the next reconcile finds the old record and completes the change.
func (r *NodeReconciler) act(ctx context.Context, s *scope, d plan.Decision) error {
	changed := r.change(ctx, s, d)
	if changed != nil && (d.Trigger == "" || apierrors.IsConflict(changed)) {
		return changed
	}
	switch { // A Node that cannot be patched is still removed from its load balancers.
	case d.Delete: // Nothing is left to restore.
		if err := release(ctx, r.Actuate, s.attachment); err != nil {
			return err
		}
		return r.Actuate.Delete(ctx, s.attachment)
	case d.Write || d.Forget:
		if err := r.write(ctx, s, d, changed == nil || !d.Cordon && !d.Mark); err != nil {
			return err
		}
	}
	return changed
}

// change cordons or uncordons the Node, and sets or clears its marks.
func (r *NodeReconciler) change(ctx context.Context, s *scope, d plan.Decision) error {
	if !d.Cordon && !d.Uncordon && !d.Mark && !d.Unmark && !d.Resume {
		return nil
	}
	key := client.ObjectKeyFromObject(s.cluster)
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, key)
	if err != nil {
		return err
	}
	before, node := s.node.DeepCopy(), s.node
	switch {
	case d.Cordon:
		node.Spec.Unschedulable = true
	case d.Uncordon:
		node.Spec.Unschedulable = false
	}
	if d.Resume {
		podorder.Resume(node)
	}
	if d.Mark || d.Unmark {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, expv1.NodeDetachingAnnotation, fmt.Sprint(d.Mark))
	}
	return remote.For(r.intent(s, d)).PatchLocked(ctx, node, before)
}

// intent describes a write for the audit log and the safety rails.
func (r *NodeReconciler) intent(s *scope, d plan.Decision) actuate.Intent {
	why := "Attach"
	if d.Trigger != "" || d.Mark {
		why = "Detach"
	}
	if s.machine != nil {
		return actuate.OnNode(s.machine, why, r.Clock.Now())
	}
	return actuate.Intent{Kind: audit.NodePatch, Why: why, At: r.Clock.Now(), Cluster: client.ObjectKeyFromObject(s.cluster)}
}

// write creates or patches the NodeAttachment with the decision. cordoned reports that the Node was cordoned and marked as
// decided.
func (r *NodeReconciler) write(ctx context.Context, s *scope, d plan.Decision, cordoned bool) error {
	a, action := s.attachment, r.Actuate.For(r.intent(s, d))
	isNew := a == nil
	if isNew {
		a = &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.cluster.Namespace, Name: AttachmentName(s.cluster.Name, s.name),
			Labels:          map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{children.ClusterReference(s.cluster)},
		}}
		a.Spec.ClusterName, a.Spec.NodeName = s.cluster.Name, s.name
	}
	before := a.DeepCopy()
	s.fill(a, d, metav1.NewTime(r.Clock.Now()))
	if !cordoned {
		a.Spec.NodeUID = "" // The next reconcile cordons and marks the Node again.
	}
	if isNew {
		if err := action.Create(ctx, a); err != nil {
			return err
		}
	} else if err := action.PatchLocked(ctx, a, before); err != nil {
		return err
	}
	s.attachment = a
	r.recordEvent(a, before.Spec.Trigger)
	return nil
}

// fill writes the decision into the spec.
func (s *scope) fill(a *expv1.NodeAttachment, d plan.Decision, now metav1.Time) {
	if d.Forget {
		a.Spec.Memberships = slices.DeleteFunc(a.Spec.Memberships, func(m expv1.Membership) bool { return !m.Persistent })
	}
	if detachesMore(a, d) {
		a.Spec.TriggerTime = now
	}
	if a.Spec.Trigger = string(d.Trigger); d.Trigger == "" {
		a.Spec.TriggerTime = metav1.Time{}
	}
	a.Spec.LoadBalancers, a.Spec.DaemonSets = d.LoadBalancers, replaced(a.Spec.DaemonSets, d.Replaces, now)
	if a.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(a, expv1.Finalizer)
	}
	if s.node != nil {
		a.Spec.NodeUID, a.Spec.ControlPlane = s.node.UID, ofControlPlane(s.node)
	}
	if s.node != nil || d.Trigger == plan.Emergency {
		a.Spec.ProviderID, a.Spec.Addresses = s.providerID, s.addresses
	}
}

// detachesMore reports whether the decision detaches the Node from a load balancer from which the record does not. The
// deadlines of load balancers then start again.
func detachesMore(a *expv1.NodeAttachment, d plan.Decision) bool {
	return d.Trigger != "" && (a.Spec.Trigger == "" || len(a.Spec.LoadBalancers) > 0 &&
		(len(d.LoadBalancers) == 0 || slices.ContainsFunc(d.LoadBalancers, func(lb string) bool { return !mustDetach(a, lb) })))
}

// ofControlPlane reports whether the Node has the label of control plane Nodes.
func ofControlPlane(node *corev1.Node) bool {
	return metav1.HasLabel(node.ObjectMeta, clusterv1.NodeRoleLabelPrefix+"/control-plane")
}

// recordEvent records an Event when a Node is detached from its load balancers, and when it is attached again.
func (r *NodeReconciler) recordEvent(a *expv1.NodeAttachment, was string) {
	switch {
	case a.Spec.Trigger != "" && was == "":
		r.Recorder.Eventf(a, nil, corev1.EventTypeNormal, expv1.DetachingReason, "Detach", "Node %s is detached from its load balancers: %s", a.Spec.NodeName, a.Spec.Trigger)
	case a.Spec.Trigger == "" && was != "":
		r.Recorder.Eventf(a, nil, corev1.EventTypeNormal, expv1.AttachingReason, "Attach", "Node %s is attached to its load balancers again", a.Spec.NodeName)
	}
}

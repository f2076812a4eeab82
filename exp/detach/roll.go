// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// roll advances the rolls of a Cluster's DaemonSets. For each DaemonSet it selects the next pod and records the
// replacement on the NodeAttachment of its Node. The reconcile of that Node detaches it and deletes the pod. Only one
// worker reconciles a Cluster at a time, so two Nodes never start together for one DaemonSet.
func (r *NodeReconciler) roll(ctx context.Context, s *scope) (again time.Duration, err error) {
	now, steps := r.Clock.Now(), map[client.ObjectKey]plan.RollStep{}
	if s.daemonSetReader == nil && slices.ContainsFunc(s.sets, func(set daemonSet) bool { return set.rolled }) {
		return 0, nil // The data is not read yet, or the cluster is not connected. Both events enqueue the Cluster.
	}
	var errs []error
	for _, set := range s.sets {
		if !set.rolled {
			continue
		}
		step, err := r.nextStep(ctx, s, set)
		switch {
		case err != nil:
			step = plan.RollStep{Waits: err.Error(), Late: true}
		case step.Node != "":
			err = r.beginReplacement(ctx, s, set, step)
		}
		errs, steps[set.ObjectKey] = append(errs, err), step
		if wait := step.Until.Sub(now); !step.Until.IsZero() && (again == 0 || wait < again) {
			again = wait
		}
	}
	return again, errors.Join(append(errs, r.reportRolls(ctx, s, steps))...)
}

// nextStep returns which pod of a DaemonSet is replaced next. While all pods are up to date, it lists neither revisions
// nor pods.
func (r *NodeReconciler) nextStep(ctx context.Context, s *scope, set daemonSet) (t plan.RollStep, err error) {
	d := &appsv1.DaemonSet{}
	switch err := s.daemonSetReader.Get(ctx, set.ObjectKey, d); {
	case apierrors.IsNotFound(err):
		return plan.RollStep{Waits: "there is no such DaemonSet", Late: true}, nil
	case err != nil:
		return t, err
	}
	if reason := blocksRoll(d); reason != "" {
		return plan.RollStep{Waits: reason, Late: d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType}, nil
	}
	cluster := client.ObjectKeyFromObject(s.cluster)
	attachments, err := attachmentsOf(ctx, r.Reader, cluster)
	if err != nil {
		return t, err
	}
	if d.Status.UpdatedNumberScheduled >= d.Status.DesiredNumberScheduled && !slices.ContainsFunc(attachments, set.replaces) {
		return plan.RollStep{}, nil
	}
	roll := plan.Roll{Now: r.Clock.Now(), Wanted: int(d.Status.DesiredNumberScheduled)}
	if roll.Revision, err = r.revision(ctx, cluster, d); err != nil {
		return t, err
	}
	pods, err := set.pods(ctx, s.daemonSetReader)
	if err != nil {
		return t, err
	}
	roll.Nodes = set.rollNodes(pods, attachments)
	return roll.Next(), nil
}

// blocksRoll returns why a DaemonSet cannot be rolled now. It is empty if it can.
func blocksRoll(d *appsv1.DaemonSet) string {
	switch {
	case d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType:
		return "its updateStrategy is not OnDelete"
	case d.Status.ObservedGeneration != d.Generation:
		return "its controller has not seen its last change yet"
	default:
		return ""
	}
}

// revision returns the current revision hash of a DaemonSet: the label of its ControllerRevision with the highest
// number. The DaemonSet controller keeps one for each template. revision reads live.
func (r *NodeReconciler) revision(ctx context.Context, cluster client.ObjectKey, d *appsv1.DaemonSet) (string, error) {
	reader, err := workload.Live(ctx, r.ClusterCache, cluster)
	if err != nil {
		return "", err
	}
	list := &appsv1.ControllerRevisionList{}
	if err := reader.List(ctx, list, client.InNamespace(d.Namespace)); err != nil {
		return "", fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	var last *appsv1.ControllerRevision
	for i := range list.Items {
		if c := &list.Items[i]; metav1.IsControlledBy(c, d) && (last == nil || c.Revision > last.Revision) {
			last = c
		}
	}
	if last == nil || last.Labels[appsv1.ControllerRevisionHashLabelKey] == "" {
		return "", fmt.Errorf("DaemonSet %s/%s has no ControllerRevision", d.Namespace, d.Name)
	}
	return last.Labels[appsv1.ControllerRevisionHashLabelKey], nil
}

// replaces reports whether a NodeAttachment records that a pod of the DaemonSet is being replaced.
func (s daemonSet) replaces(a expv1.NodeAttachment) bool { return s.recorded(a) != nil }

func (s daemonSet) recorded(a expv1.NodeAttachment) *expv1.ReplacedPod {
	i := slices.IndexFunc(a.Spec.DaemonSets, func(p expv1.ReplacedPod) bool { return p.Namespace == s.Namespace && p.Name == s.Name })
	if i < 0 {
		return nil
	}
	return &a.Spec.DaemonSets[i]
}

// rollNodes returns the Nodes that run a pod of the DaemonSet, or have one replaced.
func (s daemonSet) rollNodes(pods []corev1.Pod, attachments []expv1.NodeAttachment) (all []plan.RollNode) {
	at := func(node string) *plan.RollNode {
		i := slices.IndexFunc(all, func(n plan.RollNode) bool { return n.Node == node })
		if i < 0 {
			i, all = len(all), append(all, plan.RollNode{Node: node})
		}
		return &all[i]
	}
	for i := range pods {
		n := at(workload.NodeOf(&pods[i]))
		n.Pods = append(n.Pods, podFacts(&pods[i]))
	}
	for _, a := range attachments {
		p, runs := s.recorded(a), slices.ContainsFunc(all, func(n plan.RollNode) bool { return n.Node == a.Spec.NodeName })
		if p == nil && !runs {
			continue // The Node has no pod of the DaemonSet.
		}
		n := at(a.Spec.NodeName)
		if p != nil {
			n.Replaces, n.Since = true, p.StartTime.Time
		}
		n.Detached = a.Spec.Trigger != "" && len(a.Spec.LoadBalancers) == 0
		n.RestorePending = a.Spec.Trigger == "" && slices.ContainsFunc(a.Spec.Memberships, func(m expv1.Membership) bool { return slices.Contains(s.balancers, m.LoadBalancer) })
	}
	return all
}

// beginReplacement records that the selected pod will be deleted. It does nothing if a live read shows that another
// replacement of the DaemonSet is in progress, which the cache may not show yet.
func (r *NodeReconciler) beginReplacement(ctx context.Context, s *scope, set daemonSet, t plan.RollStep) error {
	cluster := client.ObjectKeyFromObject(s.cluster)
	live, err := attachmentsOf(ctx, r.Live, cluster)
	if err != nil || slices.ContainsFunc(live, set.replaces) {
		return err
	}
	n, err := r.observe(ctx, cluster, t.Node)
	if err != nil || n == nil {
		return err
	}
	req, before := requestFor(cluster, t.Node), versionOf(n.attachment)
	if r.fresh.Hold(req, before, r.Clock.Now()) > 0 {
		return nil // The update of its NodeAttachment enqueues it.
	}
	for i := range n.daemonSets {
		if n.daemonSets[i].Name == set.String() {
			n.daemonSets[i].Next = t.Pod
		}
	}
	d := r.decide(n)
	if !slices.Contains(d.Replaces, plan.Replacement{DaemonSet: set.String(), Pod: t.Pod}) {
		return nil // The Node leaves, or is cordoned.
	}
	err = r.act(ctx, n, d)
	r.fresh.Wrote(req, before, versionOf(n.attachment))
	return err
}

// deletePods deletes each recorded outdated pod once its load balancers have drained the Node, or their deadlines have
// passed. again is the delay until the next deadline, zero if none is pending.
func (r *NodeReconciler) deletePods(ctx context.Context, s *scope) (again time.Duration, err error) {
	if s.attachment == nil || s.node == nil {
		return 0, nil
	}
	now := r.Clock.Now()
	for i, d := range s.daemonSets {
		p := s.sets[i].recorded(*s.attachment)
		if p == nil || !d.Waits(plan.Replacement{Pod: string(p.PodUID)}) {
			continue
		}
		if until, waits := s.waitsForBalancers(s.sets[i], p.StartTime.Time, now); waits {
			if wait := until.Sub(now); !until.IsZero() && (again == 0 || wait < again) {
				again = wait
			}
			continue
		}
		if err := r.deletePod(ctx, s, i, p.PodUID); err != nil {
			return 0, err
		}
	}
	return again, nil
}

// waitsForBalancers reports whether a pod still waits for load balancers, and until when at most. A roll is not urgent.
// No deadline applies while a load balancer has not been queried, or while its floor holds the member; until is zero
// then.
func (s *scope) waitsForBalancers(set daemonSet, since, now time.Time) (until time.Time, waits bool) {
	v := leaving.Verdict{}
	for i := range s.balancers {
		lb := &s.balancers[i]
		if !slices.Contains(set.balancers, lb.Name) || s.attachment.Spec.ControlPlane && !lb.Spec.ControlPlane {
			continue
		}
		p := progressIfDetaching(s.attachment, lb)
		if p == nil || p.Phase == expv1.PhasePending || p.Phase == expv1.PhaseHeld {
			return time.Time{}, true
		}
		wait(&v, lb, s.attachment, leaving.Departing{Began: since}, since, now)
	}
	return v.Again, v.Holds
}

// deletePod deletes the pod of the i-th DaemonSet of the Node. It cancels the replacement if the pod is no longer
// outdated. It reads live everything that the decision depends on.
func (r *NodeReconciler) deletePod(ctx context.Context, s *scope, i int, uid types.UID) error {
	cluster := client.ObjectKeyFromObject(s.cluster)
	reader, err := workload.Live(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	if err := unchanged(ctx, r.Live, s.attachment); err != nil {
		return err
	}
	pods, err := s.sets[i].pods(ctx, reader, client.MatchingFields{nodeField: s.node.Name})
	if err != nil {
		return err
	}
	at := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.UID == uid })
	if at < 0 {
		return nil // The pod's watch event enqueues the Node.
	}
	switch is, err := r.outdated(ctx, reader, s, s.sets[i], &pods[at]); {
	case err != nil:
		return err
	case !is:
		s.daemonSets[i].Rolled = false
		return r.act(ctx, s, r.decide(s))
	}
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Deleting outdated pod", "Node", s.node.Name, "pod", client.ObjectKeyFromObject(&pods[at]))
	return remote.For(actuate.Intent{Kind: audit.NodePatch, Why: "Roll", At: r.Clock.Now(), Cluster: cluster}).Delete(ctx, &pods[at])
}

// outdated reports whether a live read confirms that the pod has an old revision, and that its DaemonSet is still
// rolled.
func (r *NodeReconciler) outdated(ctx context.Context, reader client.Reader, s *scope, set daemonSet, pod *corev1.Pod) (bool, error) {
	d := &appsv1.DaemonSet{}
	switch err := reader.Get(ctx, set.ObjectKey, d); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading DaemonSet %s: %w", set, err)
	case blocksRoll(d) != "":
		return false, nil
	}
	revision, err := r.revision(ctx, client.ObjectKeyFromObject(s.cluster), d)
	return err == nil && podFacts(pod).Revision != revision, err
}

// reportRolls writes the condition DaemonSetsUpToDate of each LoadBalancer. It records an Event when the reason changes
// to RolloutStalled.
func (r *NodeReconciler) reportRolls(ctx context.Context, s *scope, steps map[client.ObjectKey]plan.RollStep) error {
	var errs []error
	balancers := notDeleting(s.balancers)
	for i := range balancers {
		lb := &balancers[i]
		before := lb.DeepCopy()
		if c := rollsOf(lb, steps); c != nil {
			conditions.Set(lb, *c)
		} else {
			conditions.Delete(lb, expv1.DaemonSetsUpToDateCondition)
		}
		if err := r.Actuate.PatchStatus(ctx, lb, before); err != nil {
			errs = append(errs, err)
			continue
		}
		was, is := conditions.Get(before, expv1.DaemonSetsUpToDateCondition), conditions.Get(lb, expv1.DaemonSetsUpToDateCondition)
		if is != nil && is.Reason == expv1.RolloutStalledReason && (was == nil || was.Reason != is.Reason) {
			r.Recorder.Eventf(lb, nil, corev1.EventTypeWarning, expv1.RolloutStalledReason, "Detach", "%s", is.Message)
		}
	}
	return errors.Join(errs...)
}

// rollsOf returns the condition for the rolls of a LoadBalancer. It returns nil if no DaemonSet has roll set.
func rollsOf(lb *expv1.LoadBalancer, steps map[client.ObjectKey]plan.RollStep) *metav1.Condition {
	c := &metav1.Condition{Type: expv1.DaemonSetsUpToDateCondition, Status: metav1.ConditionTrue, Reason: expv1.UpToDateReason}
	var notes []string
	rolls := false
	for _, d := range lb.Spec.DaemonSets {
		rolls = rolls || d.Roll
		t := steps[client.ObjectKey{Namespace: d.Namespace, Name: d.Name}]
		if !d.Roll || t == (plan.RollStep{}) {
			continue
		}
		if c.Status = metav1.ConditionFalse; t.Late {
			c.Reason = expv1.RolloutStalledReason
		} else if c.Reason == expv1.UpToDateReason {
			c.Reason = expv1.RollingOutReason
		}
		text := fmt.Sprintf("%s/%s: ", d.Namespace, d.Name)
		if t.Left > 0 {
			text += fmt.Sprintf("%d outdated; ", t.Left)
		}
		if t.Waits == "" {
			t.Waits = fmt.Sprintf("Node %s is next", t.Node)
		}
		notes = append(notes, text+t.Waits)
	}
	if !rolls {
		return nil
	}
	c.Message = clip.Message(strings.Join(notes, "; "))
	return c
}
